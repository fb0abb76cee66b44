//! The simulated host itself.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn the_simulated_host_has_the_rules_of_the_real_one() {
    let world = World::new(0, false);
    let host = SimulatedHost::new(&world);
    assert_eq!(host.get("k"), None);
    assert!(
        host.set("k", b"1", Some(12)),
        "any version will do for an absent key"
    );
    let first = host.get("k").unwrap();
    assert!(!host.set("k", b"2", Some(NO_VERSION)));
    assert!(!host.set("k", b"2", Some(first.version + 1)));
    assert!(host.set("k", b"1", Some(first.version)));
    assert_ne!(
        host.get("k").unwrap().version,
        first.version,
        "each write is a new version"
    );
    assert!(host.set("k", b"3", None));
    let gauge = host.gauge("g", &[("a", "b")]);
    host.add(gauge, -1);
    assert_eq!(host.read(gauge), u64::MAX, "below zero it wraps");
    host.put(gauge, 5);
    assert_eq!(host.read(host.gauge("g", &[("a", "b")])), 5);
}
