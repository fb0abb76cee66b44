//! Every decision of rolter-envoy, as pure code.
