//! The Envoy filter.
