//! Which of many vectors are closest to one.

use super::vector::Vector;

/// What is close to a vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearest<T> {
    /// The similarity of the closest, close enough or not; nothing where there are none.
    pub best: Option<f32>,
    /// Those at the threshold and over it, the closest first.
    pub near: Vec<T>,
}

/// What rounding takes from a similarity, at most. Without it a threshold of one would not be reached
/// even by the same text.
const ROUNDING: f64 = 1e-5;

/// Looks at each candidate once, and returns so many at most.
pub fn nearest<'a, T>(
    to: &Vector,
    candidates: impl IntoIterator<Item = (T, &'a Vector)>,
    threshold: f64,
    most: usize,
) -> Nearest<T> {
    let mut best = None::<f32>;
    let mut near: Vec<(f32, T)> = Vec::with_capacity(most + 1);
    for (candidate, vector) in candidates {
        let similarity = to.similarity(vector);
        best = Some(best.map_or(similarity, |best| best.max(similarity)));
        if f64::from(similarity) + ROUNDING >= threshold {
            // Of equals the first one stays before the next.
            let place = near.partition_point(|(other, _)| *other >= similarity);
            near.insert(place, (similarity, candidate));
            near.truncate(most);
        }
    }
    let near = near.into_iter().map(|(_, candidate)| candidate).collect();
    Nearest { best, near }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    /// At an angle whose cosine is this.
    fn at(cosine: f32) -> Vector {
        Vector::new(vec![cosine, (1.0 - cosine * cosine).sqrt()]).unwrap()
    }

    fn places(cosines: &[f32], threshold: f64, most: usize) -> Vec<usize> {
        let vectors: Vec<Vector> = cosines.iter().map(|&cosine| at(cosine)).collect();
        let found = nearest(&at(1.0), vectors.iter().enumerate(), threshold, most);
        found.near
    }

    #[test]
    fn those_that_are_close_enough_come_closest_first() {
        assert_eq!(places(&[0.5, 0.95, 0.91, 1.0, 0.97], 0.92, 3), [3, 4, 1]);
        assert_eq!(places(&[0.5, 0.95, 0.91, 1.0, 0.97], 0.92, 2), [3, 4]);
        assert_eq!(places(&[0.9, 0.9, 0.9], 0.5, 2), [0, 1]);
        assert_eq!(places(&[0.9], 0.92, 3), [0_usize; 0]);
        assert_eq!(places(&[0.9], 0.5, 0), [0_usize; 0]);
    }

    #[test]
    fn the_best_is_told_also_where_it_is_not_close_enough() {
        let (far, farther) = (at(0.5), at(-0.5));
        let found = nearest(&at(1.0), [((), &farther), ((), &far)], 0.9, 3);
        assert!(found.near.is_empty());
        assert!((found.best.unwrap() - 0.5).abs() < 1e-6);
        let nothing = nearest::<()>(&at(1.0), [], 0.9, 3);
        assert_eq!(nothing.best, None);
    }

    #[test]
    fn the_same_is_close_enough_for_any_threshold() {
        let numbers: Vec<f32> = (0..1536u16).map(|n| f32::from(n).sin()).collect();
        let same = Vector::new(numbers).unwrap();
        assert_eq!(nearest(&same, [((), &same)], 1.0, 3).near.len(), 1);
        assert_eq!(places(&[0.9999], 1.0, 3), [0_usize; 0]);
    }

    #[test]
    fn what_is_of_another_dimension_is_not_close() {
        let other = Vector::new(vec![1.0]).unwrap();
        assert!(nearest(&at(1.0), [((), &other)], 0.1, 3).near.is_empty());
    }
}
