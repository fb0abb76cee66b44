//! Vectors, and how alike they are.

use super::super::vector::{MAX_DIMENSION, Vector};
use proptest::prelude::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn vector(numbers: &[f32]) -> Vector {
    Vector::new(numbers.to_vec()).unwrap_or_else(|| panic!("no vector: {numbers:?}"))
}

#[test]
fn similarity_is_the_cosine() {
    for (one, other, expected) in [
        (vec![1.0, 0.0], vec![2.0, 0.0], 1.0),
        (vec![1.0, 0.0], vec![0.0, 3.0], 0.0),
        (vec![1.0, 0.0], vec![-1.0, 0.0], -1.0),
        (vec![1.0, 1.0], vec![1.0, 0.0], 0.5f32.sqrt()),
        (vec![1e-20, 0.0], vec![1e30, 1e30], 0.5f32.sqrt()),
        (vec![1.0, 0.0], vec![1.0, 0.0, 0.0], 0.0),
    ] {
        let similarity = vector(&one).similarity(&vector(&other));
        assert!(
            (similarity - expected).abs() < 1e-6,
            "{one:?} {other:?} {similarity}"
        );
    }
}

#[test]
fn what_has_no_direction_is_no_vector() {
    for numbers in [
        vec![],
        vec![0.0, -0.0],
        vec![f32::NAN, 1.0],
        vec![f32::INFINITY],
        vec![1.0; MAX_DIMENSION + 1],
    ] {
        assert_eq!(Vector::new(numbers.clone()), None);
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(Vector::from_bytes(&bytes), None);
    }
    let bytes = vector(&[3.0, 4.0]).to_bytes();
    assert_eq!(bytes.len(), 8);
    assert_eq!(Vector::from_bytes(&bytes[..7]), None);
    assert_eq!(Vector::from_bytes(&bytes[..4]), None);
}

proptest! {
    #[test]
    fn the_sum_in_parts_is_the_sum(
        pairs in prop::collection::vec((-1.0f32..1.0, -1.0f32..1.0), 1..100),
    ) {
        let (one, other): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
        let length = |v: &[f32]| v.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        prop_assume!(length(&one) > 1e-3 && length(&other) > 1e-3);
        let dot: f64 = pairs.iter().map(|&(x, y)| f64::from(x) * f64::from(y)).sum();
        let expected = dot / length(&one) / length(&other);
        let (one, other) = (vector(&one), vector(&other));
        prop_assert!((f64::from(one.similarity(&other)) - expected).abs() < 1e-4);
        prop_assert_eq!(Vector::from_bytes(&one.to_bytes()), Some(one));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Some(vector) = Vector::from_bytes(&bytes) {
            prop_assert!((vector.similarity(&vector) - 1.0).abs() < 1e-2);
        }
    }
}
