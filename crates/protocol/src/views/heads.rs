//! What a message's head says, and what a message is to whom it reaches.

use secsv_federation::RoundId;

use super::{About, Message};
use crate::{
    PartyId,
    codec::Reader,
    decryptors::Protocol,
    error::CodecError,
    first_layer_batch::FirstLayerBatchId,
    message::{Kind, Place},
};

/// Whether a server can read nothing in such a message.
pub(super) fn is_ciphertext(protocol: Protocol, kind: Kind, from: PartyId) -> bool {
    let of_client = matches!(from, PartyId::Client(_));
    match (protocol, kind) {
        (Protocol::SecretSv, _) => false,
        (_, Kind::Model | Kind::FirstLayer | Kind::Half) => true,
        (Protocol::Hesv, Kind::Data | Kind::Shared | Kind::Truth | Kind::Predicted) => of_client,
        _ => false,
    }
}

/// What a message is.
pub(super) fn holds(protocol: Protocol, kind: Kind, from: PartyId) -> &'static str {
    match kind {
        _ if is_ciphertext(protocol, kind, from) => "ciphertext, not readable",
        Kind::Hello => "published sizes",
        Kind::Session => "agreement",
        Kind::ServerKeys if protocol == Protocol::SecretSv => "seed",
        Kind::ServerKeys => "public key",
        Kind::ClientKeys => "sealed envelope",
        Kind::RoundStart | Kind::Test | Kind::OwnTest | Kind::Done => "announcement",
        Kind::Common => "seed",
        Kind::Reply | Kind::Differences => "ciphertext",
        Kind::OwnResult => "right or wrong",
        Kind::Count | Kind::OwnCount => "count",
        Kind::PublicKey => "public key",
        Kind::Opened => "seed",
        Kind::Values => "values",
        Kind::Model
        | Kind::Data
        | Kind::FirstLayer
        | Kind::Shared
        | Kind::Truth
        | Kind::Predicted
        | Kind::Verdict
        | Kind::Triple
        | Kind::Opening
        | Kind::OutputShare => "share",
        _ => "not decoded",
    }
}

/// What a message's head says.
pub(super) fn about(protocol: Protocol, message: &Message) -> About {
    let mut about = About::default();
    // What does not decode says nothing.
    let _ = read(protocol, message, &mut about);
    about
}

fn read(protocol: Protocol, message: &Message, about: &mut About) -> Result<(), CodecError> {
    let mut r = Reader::new(message.content());
    let is_secret = protocol == Protocol::SecretSv;
    match message.kind {
        Kind::RoundStart | Kind::Model => about.round = Some(RoundId(r.u32()?)),
        Kind::FirstLayer => {
            about.round = Some(RoundId(r.u32()?));
            if !is_secret {
                let _: FirstLayerBatchId = r.array()?;
                about.chunk = Some(r.u32()? as usize);
            }
        }
        Kind::Test => {
            about.test = Some(r.u64()?);
            about.round = Some(RoundId(r.u32()?));
        }
        Kind::OwnTest | Kind::OwnResult | Kind::OwnCount => about.test = Some(r.u64()?),
        Kind::Done => match (r.u8()?, r.u64()?) {
            (0, test) => about.test = Some(test),
            (_, round) => about.round = Some(RoundId(round as u32)),
        },
        Kind::ClientKeys if message.to == PartyId::Principal => about.client = Some(r.u16()?),
        Kind::Data if protocol == Protocol::Hesv => about.chunk = Some(r.u32()? as usize),
        Kind::Opening if is_secret => {
            if r.u8()? == 0 {
                about.round = Some(RoundId(r.u32()?));
                about.owner = Some(r.u16()?);
            } else {
                place(r.rest(), about)?;
            }
        }
        Kind::Half
        | Kind::Reply
        | Kind::Shared
        | Kind::Truth
        | Kind::Predicted
        | Kind::Verdict
        | Kind::Opened
        | Kind::Triple
        | Kind::Opening
        | Kind::OutputShare
        | Kind::Differences
        | Kind::Count => place(message.content(), about)?,
        _ => {}
    }
    Ok(())
}

fn place(bytes: &[u8], about: &mut About) -> Result<(), CodecError> {
    let (place, _) = Place::decode(bytes)?;
    about.test = Some(place.unit.test);
    about.group = Some(place.unit.group);
    about.part = Some(place.unit.part);
    about.step = Some(place.step);
    about.item = Some(place.item);
    about.chunk = Some(place.chunk);
    Ok(())
}
