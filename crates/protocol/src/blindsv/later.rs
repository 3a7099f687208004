//! Operators behind hops: a server's part of a coalition's operator, and its product with inputs that both servers see under masks.
//!
//! With E + U_P + U_A the operator, X + L_P + L_A what was opened of its inputs, and W = (U_P + U_A) (L_P + L_A) dealt by the owner,
//! the principal computes (E + U_P) (X + L) - E L_P - W_P and the auxiliary U_A (X + L) - E L_A - W_A: shares of the product.

use std::sync::Arc;

use secsv_algebra::{Matrix, Ring64, Secret, Seed, Share};
use secsv_federation::{Coalition, RoundId};

use super::{
    layer::{ModelMasks, mask_of},
    words::unpack,
};
use crate::{Error, message::Server, program::Operator, session::BlindSession};

/// A server's part of a coalition's operator.
pub(crate) struct Later<'a> {
    /// Which operator.
    pub operator: usize,
    of_program: &'a Operator,
    /// E: the sum of the members' masked weights.
    masked: Matrix<Ring64>,
    /// What inputs as they were opened are multiplied with.
    own: Share<Ring64>,
    /// The server's share of the biases, times their public factor.
    biases: Secret<Vec<u64>>,
}

impl<'a> Later<'a> {
    /// From the masked models of a round's participants, in their order.
    pub(crate) fn new(
        session: &'a BlindSession,
        (server, masks): (Server, &Seed),
        (round, coalition): (RoundId, Coalition),
        operator: usize,
        models: &[Arc<Vec<u8>>],
    ) -> Result<Self, Error> {
        let of_program = &session.program().operators[operator];
        let shape = of_program.shape;
        let weights = shape.d_out * shape.d_in;
        let mut masked = vec![0u64; weights];
        let mut own = Secret::new(vec![0u64; weights + shape.d_out]);
        let is_principal = server == Server::Principal;
        let participants = session.federation.participants(round).members();
        for (client, model) in participants.zip(models).filter(|(client, _)| coalition.contains(*client)) {
            let (words, bytes) = session.model_part(operator);
            let mask = mask_of(masks, round, client, words);
            let packed = unpack(model.get(bytes).unwrap_or(&[]), session.hops().bytes(operator));
            for (index, (word, mask)) in packed.zip(mask.expose()).enumerate() {
                let sum = &mut own.expose_mut()[index];
                *sum = sum.wrapping_add(*mask);
                match masked.get_mut(index) {
                    Some(sum) => *sum = sum.wrapping_add(word),
                    None if is_principal => *sum = sum.wrapping_add(word),
                    None => {}
                }
            }
        }
        let factor = session.scales(round, coalition).factors[operator];
        let biases = own.expose_mut().split_off(weights);
        let biases =
            Secret::new(biases.into_iter().map(|bias| bias.wrapping_mul(factor)).collect::<Vec<_>>());
        if is_principal {
            own.expose_mut().iter_mut().zip(&masked).for_each(|(own, word)| *own = own.wrapping_add(*word));
        }
        let own = std::mem::take(own.expose_mut());
        Ok(Self {
            operator,
            of_program,
            masked: Matrix::new(Ring64, shape.d_out, shape.d_in, masked)?,
            own: Share::new(Matrix::new(Ring64, shape.d_out, shape.d_in, own)?),
            biases,
        })
    }

    /// The server's share of the biases, times their public factor.
    pub(crate) fn biases(&self) -> &[u64] {
        self.biases.expose()
    }

    /// Where each output of a sample stands among its rows; none if they stand so.
    pub(crate) fn order(&self) -> Option<impl Iterator<Item = usize> + use<>> {
        self.of_program.order()
    }

    /// The server's share of the outputs, row by row. `opened` are the inputs under both masks, `masks` the server's; `dealt` is its
    /// share of the masks' product.
    pub(crate) fn outputs(
        &self,
        opened: &[u64],
        mut masks: Secret<Vec<u64>>,
        mut dealt: Secret<Vec<u64>>,
    ) -> Result<Secret<Vec<u64>>, Error> {
        let inputs = self.of_program.input_size();
        let samples = opened.len() / inputs.max(1);
        let opened = Matrix::new(Ring64, inputs, samples, opened.to_vec())?;
        let masks = std::mem::take(masks.expose_mut());
        let masks = Share::new(Matrix::new(Ring64, inputs, samples, masks)?);
        let mut found = self.of_program.multiply(self.own.expose(), &opened)?;
        let less = self.of_program.multiply(&self.masked, masks.expose())?;
        let of_row = (self.of_program.positions * samples).max(1);
        let rows = found.expose_mut().chunks_exact_mut(of_row).zip(self.biases.expose());
        let rest = less.expose().chunks_exact(of_row).zip(dealt.expose_mut().chunks_exact(of_row));
        for ((row, bias), (less, dealt)) in rows.zip(rest) {
            for ((sum, less), dealt) in row.iter_mut().zip(less).zip(dealt) {
                *sum = sum.wrapping_sub(*less).wrapping_sub(*dealt).wrapping_add(*bias);
            }
        }
        Ok(found)
    }
}

/// What an owner deals products from: a coalition's masks of one operator.
pub(crate) struct LaterMasks<'a> {
    of_program: &'a Operator,
    masks: Share<Ring64>,
}

impl<'a> LaterMasks<'a> {
    /// From the seeds of both servers' masks.
    pub(crate) fn new(
        session: &'a BlindSession,
        seeds: &ModelMasks,
        (round, coalition): (RoundId, Coalition),
        operator: usize,
    ) -> Result<Self, Error> {
        let of_program = &session.program().operators[operator];
        let shape = of_program.shape;
        let mut sum = Secret::new(vec![0u64; shape.d_out * shape.d_in]);
        let participants = session.federation.participants(round).members();
        for client in participants.filter(|client| coalition.contains(*client)) {
            for seed in seeds {
                let (words, _) = session.model_part(operator);
                let mask = mask_of(seed, round, client, words);
                let pairs = sum.expose_mut().iter_mut().zip(mask.expose());
                pairs.for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            }
        }
        let sum = std::mem::take(sum.expose_mut());
        Ok(Self { of_program, masks: Share::new(Matrix::new(Ring64, shape.d_out, shape.d_in, sum)?) })
    }

    /// The product with the masks of inputs, row by row.
    pub(crate) fn product(&self, mut inputs: Secret<Vec<u64>>) -> Result<Secret<Vec<u64>>, Error> {
        let rows = self.of_program.input_size();
        let inputs = std::mem::take(inputs.expose_mut());
        let inputs = Share::new(Matrix::new(Ring64, rows, inputs.len() / rows.max(1), inputs)?);
        self.of_program.multiply(self.masks.expose(), inputs.expose())
    }
}
