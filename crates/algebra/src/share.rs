//! Additive sharing between two parties: a secret matrix is the sum of two uniform ones, and one of the two
//! is the stream of a seed, so it travels as 32 bytes (paper, "Additive secret sharing").

use crate::{AlgebraError, Matrix, Ring, Secret, Seed};

/// One party's summand. Alone it is uniform.
#[derive(Clone)]
pub struct Share<R: Ring>(Secret<Matrix<R>>);

impl<R: Ring> Share<R> {
    /// A share that arrived as a matrix.
    pub fn new(matrix: Matrix<R>) -> Self {
        Self(Secret::new(matrix))
    }

    /// The summand, for the party that holds it.
    pub fn expose(&self) -> &Matrix<R> {
        self.0.expose()
    }

    /// Share of the sum of two shared secrets.
    pub fn add(&self, other: &Self) -> Result<Self, AlgebraError> {
        Ok(Self::new(self.expose().add(other.expose())?))
    }
}

/// A share that is the stream of a seed.
#[derive(Clone)]
pub struct SeedShare<R: Ring> {
    ring: R,
    rows: usize,
    columns: usize,
    seed: Seed,
}

impl<R: Ring> SeedShare<R> {
    /// The share of this shape that the seed stands for.
    pub fn new(ring: R, rows: usize, columns: usize, seed: Seed) -> Self {
        Self { ring, rows, columns, seed }
    }

    /// The seed, for the codec.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// The whole summand.
    pub fn expand(&self) -> Share<R> {
        Share::new(Matrix::seeded(self.ring, self.rows, self.columns, &self.seed))
    }
}

/// Splits a secret: the first share is the stream of `seed`, which must be fresh, the second the rest.
pub fn split<R: Ring>(secret: &Matrix<R>, seed: Seed) -> (SeedShare<R>, Share<R>) {
    let (rows, columns) = secret.shape();
    let seeded = SeedShare::new(secret.ring(), rows, columns, seed);
    let rest =
        secret.sub(seeded.expand().expose()).expect("the mask was drawn in the secret's shape and ring");
    (seeded, Share::new(rest))
}

/// Adds two shares up.
pub fn reconstruct<R: Ring>(one: &Share<R>, other: &Share<R>) -> Result<Matrix<R>, AlgebraError> {
    one.expose().add(other.expose())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Prg, Ring64};
    use proptest::prelude::*;

    fn round_trip<R: Ring>(ring: R, rows: usize, columns: usize, seed: [u8; 32]) {
        let secret = Matrix::uniform(ring, rows, columns, &mut Prg::new(&Seed::from_bytes([9; 32])));
        let (seeded, rest) = split(&secret, Seed::from_bytes(seed));
        assert_eq!(reconstruct(&seeded.expand(), &rest).unwrap(), secret);
        let doubled = reconstruct(&seeded.expand().add(&seeded.expand()).unwrap(), &rest.add(&rest).unwrap());
        assert_eq!(doubled.unwrap(), secret.add(&secret).unwrap());
    }

    proptest! {
        #[test]
        fn shares_add_up(rows in 0usize..9, columns in 0usize..9, seed: [u8; 32]) {
            round_trip(Field::standard(), rows, columns, seed);
            round_trip(Field::compact(), rows, columns, seed);
            round_trip(Ring64, rows, columns, seed);
        }
    }

    #[test]
    fn each_share_alone_looks_uniform_whatever_the_secret() {
        let field = Field::standard();
        for secret in
            [Matrix::zero(field, 100, 100), Matrix::from_fn(field, 100, 100, |_, _| field.modulus() - 1)]
        {
            let (seeded, rest) = split(&secret, Seed::from_bytes([3; 32]));
            for share in [seeded.expand(), rest] {
                let half = share.expose().elements().iter().filter(|&&x| x < field.modulus() / 2).count();
                assert!((4_700..5_300).contains(&half), "{half} of 10000 in the lower half");
            }
        }
    }
}
