//! Where a value stands between the ends of an axis.

/// An axis, from zero or in powers of ten.
#[derive(Clone, Copy, Debug)]
pub(super) enum Axis {
    Linear { top: f64 },
    Powers { low: f64, top: f64 },
}

impl Axis {
    /// From zero to these.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let top = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        Self::Linear {
            top: if top > 0.0 { top } else { 1.0 },
        }
    }

    /// Around these, with a little room.
    pub(super) fn powers(values: impl Iterator<Item = f64>) -> Self {
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, top) = values.fold((f64::MAX, 0.0_f64), |(low, top), value| {
            (low.min(value), top.max(value))
        });
        if low > top {
            return Self::Powers {
                low: 1.0,
                top: 10.0,
            };
        }
        Self::Powers {
            low: low / 1.3,
            top: top * 1.3,
        }
    }

    /// From zero at the beginning to one at the end.
    pub(super) fn at(self, value: f64) -> f64 {
        let at = match self {
            Self::Linear { top } => value / top,
            Self::Powers { low, top } => (value / low).ln() / (top / low).ln(),
        };
        at.clamp(0.0, 1.0)
    }

    /// Round values for lines across.
    pub(super) fn marks(self) -> Vec<f64> {
        match self {
            Self::Linear { top } => {
                let rough = top / 4.0;
                let power = 10_f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
                let step = step.into_iter().find(|step| *step >= rough).unwrap_or(top);
                let marks = (0..).map(|nth: u32| f64::from(nth) * step);
                marks.take_while(|mark| *mark <= top * 1.000_1).collect()
            }
            Self::Powers { low, top } => {
                let within = |steps: &[f64]| -> Vec<f64> {
                    let powers = (-9..12).map(|power| 10_f64.powi(power));
                    let marks = powers.flat_map(|power| steps.iter().map(move |step| step * power));
                    marks.filter(|mark| (low..=top).contains(mark)).collect()
                };
                let dense = within(&[1.0, 2.0, 5.0]);
                if dense.len() > 7 {
                    within(&[1.0])
                } else {
                    dense
                }
            }
        }
    }
}
