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

/// A function that goes on below 0 as above it, turned by half a circle.
struct Mirrored {
    /// Its value at 0.
    middle: f64,
    /// What slopes are multiplied by.
    scale: f64,
    /// The slope at 0.
    slope: f64,
    /// Knots above 0, and the slope above each.
    above: &'static [(f64, f64)],
}

impl Mirrored {
    fn pieces(&self) -> Approximation {
        let slopes = || [self.slope].into_iter().chain(self.above.iter().map(|(_, slope)| *slope));
        let knots = || self.above.iter().map(|(knot, _)| *knot);
        let widths = knots().zip([0.0].into_iter().chain(knots())).map(|(knot, before)| knot - before);
        let rise: f64 = widths.zip(slopes()).map(|(width, slope)| width * slope).sum();
        let below = knots().zip(slopes()).map(|(knot, slope)| (-knot, slope / self.scale));
        let mut pieces: Vec<(f64, f64)> = below.collect();
        pieces.reverse();
        pieces.extend(self.above.iter().map(|(knot, slope)| (*knot, slope / self.scale)));
        Approximation { first: self.middle - rise / self.scale, pieces }
    }
}

impl Approximation {
    /// That of a function of recurrent units, with more pieces.
    pub(super) fn fine(activation: Activation) -> Option<Self> {
        match activation {
            Activation::Sigmoid => Some(FINE_SIGMOID.pieces()),
            Activation::Tanh => Some(FINE_TANH.pieces()),
            _ => None,
        }
    }

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
/// Off by at most 0.0008. Slopes have few bits: what comes of them is multiplied.
const FINE_SIGMOID: Mirrored = Mirrored {
    middle: 0.5,
    scale: 256.0,
    slope: 63.0,
    above: &[
        (0.49560546875, 57.0),
        (0.87890625, 49.0),
        (1.2216796875, 41.0),
        (1.5498046875, 33.0),
        (1.87744140625, 26.0),
        (2.23046875, 19.0),
        (2.6396484375, 13.0),
        (3.11572265625, 8.0),
        (3.723876953125, 4.0),
        (4.44189453125, 2.0),
        (5.14697265625, 1.0),
        (6.541259765625, 0.0),
    ],
};
/// Off by at most 0.0008.
const FINE_TANH: Mirrored = Mirrored {
    middle: 0.0,
    scale: 128.0,
    slope: 127.0,
    above: &[
        (0.189697265625, 119.0),
        (0.342041015625, 109.0),
        (0.468505859375, 98.0),
        (0.59033203125, 86.0),
        (0.712890625, 74.0),
        (0.838134765625, 62.0),
        (0.9677734375, 51.0),
        (1.1005859375, 41.0),
        (1.2412109375, 32.0),
        (1.39501953125, 24.0),
        (1.568603515625, 17.0),
        (1.77490234375, 11.0),
        (2.03955078125, 6.0),
        (2.36767578125, 3.0),
        (2.791259765625, 1.0),
        (3.6181640625, 0.0),
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
            let found = at(&Curve::of(&[activation]).unwrap(), x);
            prop_assert!((found - exact(activation, x)).abs() <= error + 1e-4, "{activation:?} at {x}: {found}");
        }

        /// In recurrent units: closer, and within the function's bounds.
        #[test]
        fn pieces_of_recurrent_units_are_closer(is_sigmoid: bool, x in -40.0f64..40.0) {
            let activation = if is_sigmoid { Activation::Sigmoid } else { Activation::Tanh };
            let found = at(&Curve::fine(&[activation]).unwrap(), x);
            prop_assert!((found - exact(activation, x)).abs() <= 0.0008, "{activation:?} at {x}: {found}");
            let lowest = if is_sigmoid { 0.0 } else { -1.0 };
            prop_assert!((lowest..=1.0).contains(&found), "{activation:?} at {x}: {found}");
        }
    }

    fn exact(activation: Activation, x: f64) -> f64 {
        let mut exact = [x];
        activate(activation, &mut exact);
        exact[0]
    }

    /// As it is computed.
    fn at(curve: &Curve, x: f64) -> f64 {
        let (scale, (bits, factor)) = (f64::powi(2.0, 20), curve.factor());
        let found = curve.at_scale(scale, 40).at((x * scale).round() as i64);
        found as f64 / (scale * f64::powi(2.0, bits) * factor)
    }

    /// What recurrent units multiply stands for powers of two.
    #[test]
    fn pieces_of_recurrent_units_have_few_bits() {
        for (activation, expected) in [(Activation::Sigmoid, 8), (Activation::Tanh, 7)] {
            assert_eq!(Curve::fine(&[activation]).unwrap().factor(), (expected, 1.0));
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
