//! A stand-in for an LLM engine.
