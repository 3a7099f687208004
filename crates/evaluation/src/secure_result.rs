//! What a secure run adds to a result: time by phase, traffic, operations, parameters, who learned what.

use std::collections::BTreeMap;

use secsv_federation::{FederationSpec, Labels};
use secsv_protocol::{
    Agreement, HopRange, PartyId, Preset, Principal, decryptors::Planner, exposure::Exposure, message::Kind,
    role::Phase, session::Session,
};

use crate::{
    Accounts, ApproximateResult, DisclosureResult, EncryptionParameters, EvaluationResult, KindTraffic,
    RangeResult, SecureEvaluator, SecurityResult, Timing, Traffic, exposure::exposure_result,
};

impl SecureEvaluator {
    /// Adds what the run cost and disclosed to its result.
    pub fn account_for(&self, spec: &FederationSpec, labels: &Labels, result: &mut EvaluationResult) {
        let accounts = self.accounts();
        let replies = accounts.operations.decrypt;
        let skips = result.skip;
        let told = |principal: &Principal| disclosed(principal, (spec, labels), replies, skips);
        let found = self.in_process().with_principal(told);
        account(&accounts, spec, result, found.flatten());
        result.recount = self.confirm(spec, result);
    }
}

/// Parameters and disclosures of a run, once there is a session: `replies` ciphertexts were decrypted by others.
pub fn disclosed(
    principal: &Principal,
    of: (&FederationSpec, &Labels),
    replies: u64,
    skips: bool,
) -> Option<(Option<EncryptionParameters>, SecurityResult)> {
    let (session, planner) = (principal.session()?, principal.planner());
    Some((parameters(session), security(of, session, planner, replies, skips)))
}

/// Enters cost, parameters and disclosures in a result.
pub fn account(
    accounts: &Accounts,
    spec: &FederationSpec,
    result: &mut EvaluationResult,
    found: Option<(Option<EncryptionParameters>, SecurityResult)>,
) {
    result.timing = timing(accounts, result.timing.wall_s);
    result.traffic = traffic(&accounts.traffic, spec);
    result.messages = messages(&accounts.traffic);
    result.operations = accounts.operations;
    result.peak_memory_bytes = peak_memory();
    if let Some((parameters, security)) = found {
        result.parameters = parameters;
        result.security = Some(security);
    }
}

/// Bytes and frames by sender, receiver and kind.
type ByKind = BTreeMap<(PartyId, PartyId, Kind), (u64, u64)>;

fn timing(accounts: &Accounts, wall_s: f64) -> Timing {
    let of = |phase| accounts.seconds.get(&phase).copied().unwrap_or_default();
    Timing {
        wall_s,
        encrypt_s: of(Phase::Encrypt),
        share_s: of(Phase::Share),
        linear_s: of(Phase::Linear),
        decrypt_s: of(Phase::Decrypt),
        activate_s: of(Phase::Activate),
        sanitise_s: of(Phase::Sanitise),
        codec_s: of(Phase::Codec),
        clear_s: of(Phase::Clear),
    }
}

/// A party's name in results.
pub fn party_name(spec: &FederationSpec, party: PartyId) -> String {
    match party {
        PartyId::Client(position) => {
            spec.clients.get(position).map_or_else(|| party.to_string(), |client| client.id.to_string())
        }
        server => server.to_string(),
    }
}

pub(crate) fn traffic(accounts: &ByKind, spec: &FederationSpec) -> Vec<Traffic> {
    let mut links: BTreeMap<(PartyId, PartyId), u64> = BTreeMap::new();
    for (&(from, to, _), &(bytes, _)) in accounts {
        *links.entry((from, to)).or_default() += bytes;
    }
    let name = |party| party_name(spec, party);
    links.into_iter().map(|((from, to), bytes)| Traffic { from: name(from), to: name(to), bytes }).collect()
}

pub(crate) fn messages(accounts: &ByKind) -> Vec<KindTraffic> {
    let mut kinds: BTreeMap<Kind, (u64, u64)> = BTreeMap::new();
    for (&(.., kind), &(bytes, frames)) in accounts {
        let entry = kinds.entry(kind).or_default();
        *entry = (entry.0 + bytes, entry.1 + frames);
    }
    kinds
        .into_iter()
        .map(|(kind, (bytes, messages))| KindTraffic { kind: kind.name().to_owned(), messages, bytes })
        .collect()
}

pub(crate) fn parameters(session: &Session) -> Option<EncryptionParameters> {
    let parameters = &session.encryption()?.parameters;
    Some(EncryptionParameters {
        preset: session.federation.settings.preset.name().to_owned(),
        degree: parameters.degree(),
        modulus_bits: parameters.limbs().iter().map(|limb| limb.bits()).sum(),
        plaintext_bits: session.plaintext_bits(),
        security_bits: 128,
    })
}

pub(crate) fn security(
    (spec, labels): (&FederationSpec, &Labels),
    session: &Session,
    planner: Option<&Planner>,
    replies: u64,
    skips: bool,
) -> SecurityResult {
    let settings = session.federation.settings;
    let lines = settings.protocol.disclosures(session.program(), skips, settings.counts_classes());
    // What cannot be planned is refused long before; a result without rows would say so.
    let exposure = Exposure::new(&session.federation).map(|exposure| match planner {
        Some(planner) => exposure.with(planner),
        None => exposure,
    });
    let floodings = session.encryption().map(|encryption| &encryption.floodings);
    SecurityResult {
        trust: settings.protocol.rules().exposure().trust.to_owned(),
        disclosures: lines
            .into_iter()
            .map(|line| DisclosureResult {
                who: line.who.into(),
                what: line.what.into(),
                why: line.why.into(),
            })
            .collect(),
        exposure: exposure.map(|exposure| exposure_result(&exposure, spec, labels)).unwrap_or_default(),
        statistical_bits_per_reply: floodings.and_then(|all| all.iter().map(|f| f.statistical_bits()).min()),
        replies,
        statistical_claim: settings.preset == Preset::Standard && session.encryption().is_some(),
        ranges: (1..).zip(session.ranges()).map(range_result).collect(),
        approximate: approximate(session),
    }
}

/// What is approximate in a session's model.
pub(crate) fn approximate(session: &Session) -> Option<ApproximateResult> {
    let Agreement { labels, equal } = session.agreement()?;
    let functions = session.federation.approximations().into_iter().map(str::to_owned).collect();
    let percent = if labels > 0 { 100.0 * equal as f64 / labels as f64 } else { 100.0 };
    Some(ApproximateResult { functions, labels, equal, percent })
}

fn range_result((layer, range): (usize, &HopRange)) -> RangeResult {
    RangeResult {
        layer,
        bound: if range.is_calibrated() { "calibrated" } else { "proven" }.to_owned(),
        bits: range.bound,
        proven_bits: range.proven,
        fraction_bits: range.fraction,
        counts_all: range.counts_all(),
    }
}

/// The process's high-water mark, where the system has one to tell.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}
