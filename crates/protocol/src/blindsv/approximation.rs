//! Smooth functions by straight pieces: **approximate**, and everybody is told so. Below its first knot a function is constant.
//!
//! Knots were found by walking along the function within a tube: each line reaches as far as any that stays in it, and the tube is as
//! narrow as so many knots allow. Slopes were then rounded, each to make up for those before it. Twice as many knots divide the error by
//! about four, and each costs a sign.

use secsv_federation::Activation;

/// A function of straight pieces, constant below the first knot.
pub(super) struct Approximation {
    /// Its value up to the first knot.
    pub first: f64,
    /// Knots, and the slope above each.
    pub pieces: Vec<(f64, f64)>,
}

/// The same as it stands here.
struct Table {
    first: f64,
    /// What slopes are multiplied by.
    scale: f64,
    pieces: &'static [(f64, f64)],
}

impl Approximation {
    /// That of a smooth function.
    pub(super) fn of(activation: Activation) -> Option<Self> {
        let Table { first, scale, pieces } = match activation {
            Activation::Sigmoid => SIGMOID,
            Activation::Tanh => TANH,
            Activation::Gelu => GELU,
            Activation::Silu => SILU,
            Activation::Elu(_) => ELU,
            _ => return None,
        };
        let mut found =
            Self { first, pieces: pieces.iter().map(|(knot, slope)| (*knot, slope / scale)).collect() };
        if let Activation::Elu(alpha) = activation {
            found.first *= alpha;
            found.pieces.iter_mut().filter(|(knot, _)| *knot < 0.0).for_each(|(_, slope)| *slope *= alpha);
        }
        Some(found)
    }
}

/// Those among activations that are computed by straight pieces, by their names in `federation.toml`.
pub(crate) fn approximated(activations: &[Activation]) -> impl Iterator<Item = &'static str> + '_ {
    activations.iter().filter_map(|activation| match activation {
        Activation::Sigmoid => Some("sigmoid"),
        Activation::Tanh => Some("tanh"),
        Activation::Gelu => Some("gelu"),
        Activation::Silu => Some("silu"),
        Activation::Elu(_) => Some("elu"),
        _ => None,
    })
}

/// Off by at most 0.0023.
const SIGMOID: Table = Table {
    first: 0.00213623,
    scale: 16384.0,
    pieces: &[
        (-5.4482421875, 190.0),
        (-3.671875, 644.0),
        (-2.6962890625, 1331.0),
        (-1.98046875, 2184.0),
        (-1.3681640625, 3115.0),
        (-0.759765625, 3957.0),
        (0.759765625, 3114.0),
        (1.3681640625, 2184.0),
        (1.98046875, 1330.0),
        (2.6962890625, 645.0),
        (3.671875, 190.0),
        (5.4482421875, 0.0),
    ],
};
/// Off by at most 0.0027.
const TANH: Table = Table {
    first: -0.99749756,
    scale: 4096.0,
    pieces: &[
        (-2.990234375, 112.0),
        (-2.1083984375, 383.0),
        (-1.6318359375, 802.0),
        (-1.2939453125, 1351.0),
        (-1.0224609375, 1990.0),
        (-0.7841796875, 2685.0),
        (-0.5576171875, 3403.0),
        (-0.31640625, 3993.0),
        (0.31640625, 3403.0),
        (0.5576171875, 2685.0),
        (0.7841796875, 1989.0),
        (1.0224609375, 1351.0),
        (1.2939453125, 802.0),
        (1.6318359375, 383.0),
        (2.1083984375, 112.0),
        (2.990234375, 0.0),
    ],
};
/// Off by at most 0.0040.
const GELU: Table = Table {
    first: -0.00347900,
    scale: 4096.0,
    pieces: &[
        (-2.8076171875, -197.0),
        (-1.9921875, -475.0),
        (-0.904296875, 59.0),
        (-0.5517578125, 793.0),
        (-0.263671875, 1626.0),
        (0.0, 2476.0),
        (0.263671875, 3301.0),
        (0.5517578125, 4030.0),
        (0.904296875, 4571.0),
        (1.9921875, 4297.0),
        (2.8076171875, 4096.0),
    ],
};
/// Off by at most 0.0039.
const SILU: Table = Table {
    first: -0.00335693,
    scale: 4096.0,
    pieces: &[
        (-6.931640625, -63.0),
        (-4.7724609375, -205.0),
        (-3.4560546875, -373.0),
        (-1.583984375, -31.0),
        (-1.072265625, 472.0),
        (-0.67578125, 1066.0),
        (-0.328125, 1715.0),
        (0.0, 2379.0),
        (0.328125, 3034.0),
        (0.67578125, 3620.0),
        (1.072265625, 4129.0),
        (1.583984375, 4469.0),
        (3.4560546875, 4299.0),
        (4.7724609375, 4161.0),
        (6.931640625, 4096.0),
    ],
};
/// Off by at most 0.0046.
const ELU: Table = Table {
    first: -0.99554443,
    scale: 4096.0,
    pieces: &[
        (-4.7197265625, 99.0),
        (-2.9716796875, 345.0),
        (-2.0478515625, 737.0),
        (-1.416015625, 1275.0),
        (-0.935546875, 1962.0),
        (-0.5517578125, 2785.0),
        (-0.232421875, 3723.0),
        (0.0, 4096.0),
    ],
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secsv_federation::clear::activate;

    use super::{super::curve::Curve, *};

    /// Errors as PROTOCOL.md has them.
    const ERRORS: [(Activation, f64); 5] = [
        (Activation::Sigmoid, 0.0023),
        (Activation::Tanh, 0.0027),
        (Activation::Gelu, 0.0040),
        (Activation::Silu, 0.0039),
        (Activation::Elu(1.0), 0.0046),
    ];

    proptest! {
        /// As it is computed, in whole numbers: close to the function wherever it is asked for.
        #[test]
        fn pieces_are_close_to_the_function(index in 0..ERRORS.len(), x in -40.0f64..40.0) {
            let (activation, error) = ERRORS[index];
            let mut exact = [x];
            activate(activation, &mut exact);
            let curve = Curve::of(&[activation]).unwrap();
            let (scale, (bits, factor)) = (f64::powi(2.0, 20), curve.factor());
            let found = curve.at_scale(scale, 40).at((x * scale).round() as i64);
            let found = found as f64 / (scale * f64::powi(2.0, bits) * factor);
            prop_assert!((found - exact[0]).abs() <= error + 1e-4, "{activation:?} at {x}: {found} for {}", exact[0]);
        }
    }

    #[test]
    fn slopes_are_as_they_stand() {
        for (activation, _) in ERRORS {
            let (curve, approximation) =
                (Curve::of(&[activation]).unwrap(), Approximation::of(activation).unwrap());
            let (scale, (bits, factor)) = (f64::powi(2.0, 20), curve.factor());
            let knots = curve.at_scale(scale, 40);
            let slopes = knots.changes.iter().scan(0, |slope, (_, change)| {
                *slope += change;
                Some(*slope as f64 / (f64::powi(2.0, bits) * factor))
            });
            let expected: Vec<f64> = approximation.pieces.iter().map(|(_, slope)| *slope).collect();
            assert_eq!(slopes.collect::<Vec<_>>(), expected, "{activation:?}");
        }
    }
}
