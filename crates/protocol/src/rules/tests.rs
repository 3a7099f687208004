use std::collections::BTreeSet;

use secsv_federation::skip::SkipMode;

use super::*;
use crate::{program::GruShape, session::Settings};

fn all() -> impl Iterator<Item = (Protocol, &'static dyn ProtocolRules)> {
    Protocol::ALL.into_iter().map(|protocol| (protocol, protocol.rules()))
}

#[test]
fn every_protocol_has_a_name_and_a_byte_of_its_own() {
    let names: BTreeSet<_> = all().map(|(_, rules)| rules.name()).collect();
    let bytes: BTreeSet<_> = all().map(|(_, rules)| rules.session_byte()).collect();
    assert_eq!((names.len(), bytes.len()), (Protocol::ALL.len(), Protocol::ALL.len()));
}

#[test]
fn every_kind_is_of_some_protocol_and_listed_once() {
    for kind in Kind::ALL {
        assert!(Protocol::ALL.into_iter().any(|protocol| kind.is_of(protocol)), "{kind} is of no protocol");
    }
    for (_, rules) in all() {
        let listed: Vec<Kind> = rules.kinds().concat();
        assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "{}", rules.name());
    }
}

#[test]
fn a_second_server_has_messages_of_its_own_and_only_where_it_takes_part() {
    let sent_by_auxiliary = [
        Kind::FirstLayerHalf,
        Kind::LayerHalf,
        Kind::DifferenceShare,
        Kind::CommonSeed,
        Kind::PublicKeyDigest,
        Kind::OutcomeShare,
    ];
    for (protocol, rules) in all() {
        let sends = sent_by_auxiliary.into_iter().any(|kind| kind.is_of(protocol));
        assert_eq!(sends, rules.has_auxiliary(), "{}", rules.name());
        // Without one, both servers together are the principal alone.
        let (samples, models) = rules.exposure().together[2];
        assert!(rules.has_auxiliary() || (samples, models) == (Can::Nothing, Can::Nothing));
        assert_eq!(rules.servers().first(), Some(&PartyId::Principal), "the principal tells the values");
    }
}

#[test]
fn whoever_takes_part_has_messages() {
    for (protocol, rules) in all() {
        let name = rules.name();
        assert_eq!(rules.has_counting_client(), Kind::Count.is_of(protocol), "{name}");
        let is_dealt = [Kind::Triple, Kind::Dealing].into_iter().any(|kind| kind.is_of(protocol));
        assert_eq!(rules.deals(true), is_dealt, "{name}");
        assert!(rules.deals(true) || !rules.deals(false), "{name}: a recurrent unit needs no fewer dealers");
        assert_eq!(rules.encryption().is_some(), Kind::PublicKey.is_of(protocol), "{name}");
        assert_eq!(rules.recounts(), Kind::OwnCount.is_of(protocol), "{name}");
        let tells_each = Kind::OwnResult.is_of(protocol);
        assert_eq!(rules.learns_each_prediction(false), tells_each, "{name}: owners say what units would");
    }
}

#[test]
fn usual_settings_go_together() {
    for (protocol, rules) in all() {
        let made = |skip| Settings::new(protocol, Preset::Standard, None, skip, true);
        assert_eq!(made(SkipMode::Off).map(|settings| settings.matmul), Ok(rules.matmuls().usual));
        assert_eq!(made(SkipMode::On).is_ok(), rules.learns_each_prediction(true));
        assert!(rules.learns_each_prediction(true) || !rules.batching().gathers, "nothing is skipped");
        if let Some(encryption) = rules.encryption() {
            for preset in [Preset::Standard, Preset::Compact] {
                let is_accepted = encryption.check_preset(preset).is_ok();
                assert_eq!(is_accepted, encryption.parameters(preset).is_ok(), "{preset:?}");
            }
        }
    }
}

#[test]
fn every_protocol_lists_what_its_server_learns() {
    let program = Program {
        input_size: 1,
        classes: 2,
        prelude: Vec::new(),
        operators: Vec::new(),
        steps: Vec::new(),
        gru: Some(GruShape { steps: 1, hidden: 1, hidden_operator: 0 }),
        wiring: None,
    };
    for protocol in Protocol::ALL {
        let lines = protocol.disclosures(&program, false, false);
        assert!(lines.iter().any(|line| line.disclosure == Disclosure::Values));
        let has = |disclosure| lines.iter().any(|line| line.disclosure == disclosure);
        let learns_each = protocol.rules().learns_each_prediction(false);
        assert_eq!(has(Disclosure::RightOrWrong), learns_each);
        assert_eq!(has(Disclosure::Counts), !learns_each, "samples stay hidden where counts suffice");
    }
}
