//! What stands for the meaning of a text: a vector that a model of embeddings has made.
//!
//! Invariant: a vector has a length of one and no number that is none, so that the cosine of two is
//! the sum of products, in one pass.

/// The largest dimension; models have up to some thousands.
pub const MAX_DIMENSION: usize = 1 << 16;

/// How far from one the square of a length may be, after what rounding to `f32` and back does.
const TOLERANCE: f32 = 1e-3;

/// A vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector(Box<[f32]>);

impl Vector {
    /// Of these numbers, drawn to a length of one. Nothing where they have no direction: none, too
    /// many, all zero, or some that are no numbers.
    pub fn new(mut numbers: Vec<f32>) -> Option<Self> {
        if numbers.len() > MAX_DIMENSION {
            return None;
        }
        let square: f64 = numbers.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let length = square.sqrt();
        if !length.is_normal() {
            return None;
        }
        for number in &mut numbers {
            #[expect(clippy::cast_possible_truncation, reason = "it is at most one")]
            {
                *number = (f64::from(*number) / length) as f32;
            }
        }
        Some(Self(numbers.into()))
    }

    /// The number of its numbers.
    pub fn dimension(&self) -> usize {
        self.0.len()
    }

    /// The cosine of the angle to another: 1 for the same direction. 0 where it is of another
    /// dimension, and so of another model.
    pub fn similarity(&self, other: &Self) -> f32 {
        if self.dimension() == other.dimension() {
            dot(&self.0, &other.0)
        } else {
            0.0
        }
    }

    /// The numbers, four bytes each, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    /// Nothing where the bytes are no vector of length one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, []) = bytes.as_chunks::<4>() else {
            return None;
        };
        if numbers.len() > MAX_DIMENSION {
            return None;
        }
        let numbers: Box<[f32]> = numbers.iter().map(|&x| f32::from_le_bytes(x)).collect();
        // False also where it is no number.
        let is_of_length_one = (dot(&numbers, &numbers) - 1.0).abs() < TOLERANCE;
        is_of_length_one.then_some(Self(numbers))
    }
}

/// The sum of the products. In several sums, which the compiler can take at once.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    const SUMS: usize = 16;
    let (one, one_rest) = one.as_chunks::<SUMS>();
    let (other, other_rest) = other.as_chunks::<SUMS>();
    let mut sums = [0.0; SUMS];
    for (one, other) in one.iter().zip(other) {
        for ((sum, x), y) in sums.iter_mut().zip(one).zip(other) {
            *sum += x * y;
        }
    }
    let rest: f32 = one_rest.iter().zip(other_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f32>() + rest
}
