//! This filter and its peers, measured on the same work in the same run.

#![forbid(unsafe_code)]

#[allow(dead_code, unused)]
mod results;

fn main() {}
