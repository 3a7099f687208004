//! The first layer: local models on every owner's samples, once a round.

use std::sync::Arc;

use secsv_algebra::{Matrix, Ring64, Share};
use secsv_federation::RoundId;

use super::{FirstProduct, Masking, ShareHost, other_party, owners};
use crate::{
    Error, PartyId,
    codec::{pack, unpack_matrix},
    message::{Kind, MaskedFirstLayer, Server},
    role::{Effects, Outgoing, Phase},
    secretsv::SharedModel,
    session::Session,
};

/// The first layer of a round: local models on each owner's samples.
pub(super) fn first_layer<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    round: RoundId,
) -> Result<Effects<H>, Error> {
    let mut effects = Effects::default();
    let Some(models) = host.secret().all_models(session, round) else { return Ok(effects) };
    for owner in owners(session) {
        effects.and(mask_first(host, session, round, owner, &models));
        effects.and(multiply_first(host, session, round, owner, &models));
    }
    // Biases alone need no product.
    effects.and(host.resume_all()?);
    Ok(effects)
}

/// Opens the first layer of every model, masked for one owner's samples.
fn mask_first<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    round: RoundId,
    owner: usize,
    models: &[(usize, Arc<SharedModel>)],
) -> Effects<H> {
    let mut effects = Effects::default();
    let secret = host.secret();
    let (Some(masks), Some(state)) = (secret.masks.get(&owner).cloned(), secret.rounds.get_mut(&round))
    else {
        return effects;
    };
    if !state.owners.entry(owner).or_default().masking.begin() {
        return effects;
    }
    let (session, models) = (session.clone(), models.to_vec());
    effects.job(move |meter| {
        meter.enter(Phase::Share);
        let mask = masks.first_masks(&session, round);
        let weights = models.iter().flat_map(|(_, model)| model.operators[0].0.expose().elements());
        let elements = weights.zip(mask.expose().elements()).map(|(&w, &u)| w.wrapping_sub(u)).collect();
        let (rows, columns) = mask.expose().shape();
        let own = Share::new(Matrix::new(Ring64, rows, columns, elements)?);
        let elements = &pack(Ring64, own.expose().elements());
        let message = Outgoing::of(other_party::<H>(), &MaskedFirstLayer { round, owner, elements });
        Ok(move |host: &mut H| {
            let mut effects = Effects::send(message);
            if let Some(state) = host.secret().rounds.get_mut(&round) {
                let masking = &mut state.owners.entry(owner).or_default().masking;
                masking.take_own::<H>(&session, own, Kind::MaskedFirstLayer)?;
                effects.and(first_layer(host, &session, round)?);
            }
            Ok(effects)
        })
    });
    effects
}

/// This server's share of first-layer outputs on one owner's samples: E X + W and the biases.
fn multiply_first<H: ShareHost>(
    host: &mut H,
    session: &Arc<Session>,
    round: RoundId,
    owner: usize,
    models: &[(usize, Arc<SharedModel>)],
) -> Effects<H> {
    let mut effects = Effects::default();
    let secret = host.secret();
    let (Some(masks), Some(data)) = (secret.masks.get(&owner).cloned(), secret.data.get(&owner).cloned())
    else {
        return effects;
    };
    let Some(state) = secret.rounds.get_mut(&round).and_then(|state| state.owners.get_mut(&owner)) else {
        return effects;
    };
    let is_dealt = H::SERVER == Server::Principal || state.dealt.is_some();
    if !is_dealt || !matches!(state.outputs, FirstProduct::Factors) {
        return effects;
    }
    let Some(masked) = state.masking.opened().cloned() else { return effects };
    state.outputs = FirstProduct::Product;
    let dealt = state.dealt.take();
    state.masking = Masking::Used;
    let (session, models) = (session.clone(), models.to_vec());
    effects.job(move |meter| {
        meter.enter(Phase::Linear);
        let columns = Share::new(session.program().operators[0].arrange(data.expose())?);
        let product = Share::new(masked.product(columns.expose())?);
        let (rows, width) = product.expose().shape();
        let from = PartyId::Client(owner);
        let dealt = match dealt {
            None => masks.first_products(&session, round, owner),
            Some(bytes) => {
                Share::new(unpack_matrix(Ring64, rows, width, &bytes).map_err(|why| Error::Malformed {
                    from,
                    kind: Kind::DealtProduct,
                    why,
                })?)
            }
        };
        let biases: Vec<u64> =
            models.iter().flat_map(|(_, model)| model.operators[0].1.expose().elements()).copied().collect();
        let outputs = Arc::new(Share::new(sum_with_biases(product.expose(), dealt.expose(), &biases)?));
        Ok(move |host: &mut H| {
            if let Some(state) = host.secret().rounds.get_mut(&round) {
                state.owners.entry(owner).or_default().outputs = FirstProduct::Known(outputs);
            }
            host.resume_all()
        })
    });
    effects
}

pub(super) fn sum_with_biases(
    product: &Matrix<Ring64>,
    dealt: &Matrix<Ring64>,
    biases: &[u64],
) -> Result<Matrix<Ring64>, Error> {
    let (rows, columns) = product.shape();
    let terms = product.elements().iter().zip(dealt.elements());
    let biases = biases.iter().flat_map(|&bias| std::iter::repeat_n(bias, columns));
    let elements = terms.zip(biases).map(|((&p, &d), b)| p.wrapping_add(d).wrapping_add(b)).collect();
    Ok(Matrix::new(Ring64, rows, columns, elements)?)
}
