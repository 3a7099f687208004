//! What a server saw under BlindSV (docs/VIEWS.md): read again from its messages, with its own seeds. Whatever is open to both servers
//! is written less the server's own masks: under the other's alone.

use std::collections::BTreeMap;

use secsv_algebra::Seed;
use secsv_federation::{Coalition, RoundId};

use super::{
    evaluator::Evaluator,
    ideal::centred,
    keys::{OwnerKey, Place, Purpose},
    layer::{mask_of, product_words},
    shape::{Chunks, Outcome, Shape, Stage},
    words::unpack,
};
use crate::{
    Error, PartyId,
    disclosure::Disclosure,
    error::CodecError,
    message::{
        BlindTest, DataShare, Dealing, DealtProduct, Kind, MaskSeed, MaskedModel, MaskedOpening,
        Message as _, ModelMaskSeed, OutcomeShare, Server, ShareBody,
    },
    session::BlindSession,
    test_id::RequestId,
    views::{Entry, Numbers, Opened, SeenMessage, View},
};

/// Messages of a session, read by a server.
struct BlindReading<'a> {
    session: &'a BlindSession,
    server: Server,
    keys: BTreeMap<usize, OwnerKey>,
    tests: BTreeMap<RequestId, BlindTest>,
    /// What this server sent for each owner and stage of a test.
    own: BTreeMap<(RequestId, usize, usize), &'a [u8]>,
    /// What owners dealt, by test and owner.
    dealt: BTreeMap<(RequestId, usize), &'a [u8]>,
    /// The server's shares of what is found, by test, coalition and owner.
    found: BTreeMap<(RequestId, usize, usize), Vec<u64>>,
    /// Its shares of how many numbers are out of range, by test and coalition.
    overflows: BTreeMap<(RequestId, usize), u64>,
    /// The seed of its masks of models.
    masks: Option<Seed>,
}

/// What a server saw. `sent` are its own announcements and openings.
pub(crate) fn server_view(
    session: &BlindSession,
    server: Server,
    received: &[SeenMessage],
    sent: &[SeenMessage],
) -> Result<View, Error> {
    let mut reading = BlindReading {
        session,
        server,
        keys: BTreeMap::new(),
        tests: BTreeMap::new(),
        own: BTreeMap::new(),
        dealt: BTreeMap::new(),
        found: BTreeMap::new(),
        overflows: BTreeMap::new(),
        masks: None,
    };
    let blamed = |message: &SeenMessage| {
        let (from, kind) = (message.from, message.kind);
        move |why| Error::Malformed { from, kind, why }
    };
    for message in received.iter().chain(sent) {
        reading.remember(message).map_err(blamed(message))?;
    }
    let mut arrays = Vec::new();
    for message in received.iter().enumerate() {
        arrays.extend(reading.read(message).map_err(blamed(message.1))?);
    }
    for (number, message) in received.iter().enumerate().filter(|(_, m)| m.kind == Kind::OutcomeShare) {
        arrays.extend(reading.outcomes(number, message).map_err(blamed(message))?);
    }
    let mut view = View::new(server.party(), received, Vec::new(), arrays);
    view.secrets.extend(["its masks of models", "its masks of owners' numbers"]);
    Ok(view)
}

impl<'a> BlindReading<'a> {
    /// Keeps what other messages are read with.
    fn remember(&mut self, message: &'a SeenMessage) -> Result<(), CodecError> {
        match (message.kind, message.from) {
            (Kind::MaskSeed, PartyId::Client(owner)) => {
                let MaskSeed { seed } = MaskSeed::decode(message.content(), &())?;
                self.keys.insert(owner, OwnerKey::new(seed));
            }
            (Kind::ModelMaskSeed, _) => {
                let ModelMaskSeed { seed } = ModelMaskSeed::decode(message.content(), &())?;
                self.masks = Some(seed);
            }
            (Kind::BlindTest, _) => {
                let test = BlindTest::decode(message.content(), &())?;
                self.tests.insert(test.request, test);
            }
            (Kind::MaskedOpening, sender) if sender == self.server.party() => {
                let MaskedOpening { request, owner, stage, masked } =
                    MaskedOpening::decode(message.content(), &())?;
                self.own.insert((request, owner, stage), masked);
            }
            (Kind::Dealing, PartyId::Client(owner)) => {
                let Dealing { request, dealt } = Dealing::decode(message.content(), &())?;
                self.dealt.insert((request, owner), dealt);
            }
            _ => {}
        }
        Ok(())
    }

    fn read(&mut self, (number, message): (usize, &SeenMessage)) -> Result<Vec<Opened>, CodecError> {
        let content = message.content();
        let entry = |what| Entry::new(message.kind, what, Some(message.from), vec![number]);
        match (message.kind, message.from) {
            (Kind::ModelMaskSeed, _) => {
                let ModelMaskSeed { seed } = ModelMaskSeed::decode(content, &())?;
                Ok(vec![entry("seed").filled((1, 32), Numbers::Bytes(seed.expose().to_vec()))])
            }
            (Kind::MaskSeed, PartyId::Client(owner)) => self.seed(owner, content, entry("seed")),
            (Kind::DataShare, PartyId::Client(owner)) => {
                let DataShare { share } = DataShare::decode(content, &self.server)?;
                let ShareBody::Elements(bytes) = share else { return Ok(Vec::new()) };
                let of_samples = self.samples(owner) * self.session.program().input_size;
                let hops = self.session.hops();
                let (samples, labels) = bytes.split_at(bytes.len().min(of_samples * hops.bytes(0)));
                let mut words: Vec<u64> = unpack(samples, hops.bytes(0)).collect();
                words.extend(unpack(labels, self.session.widths().bytes()));
                Ok(self.data(owner, words, &entry("share")))
            }
            (Kind::MaskedModel, PartyId::Client(client)) => {
                let MaskedModel { round, elements } = MaskedModel::decode(content, &())?;
                let mut entry = entry("masked model");
                entry.disclosure = Some(Disclosure::MaskedFactors);
                (entry.about.round, entry.about.client) = (Some(round), Some(client));
                entry.about.coalition = Some(Coalition::EMPTY.with(client));
                let operators = 0..self.session.program().operators.len();
                Ok(operators.flat_map(|operator| self.masked_model(operator, elements, &entry)).collect())
            }
            (Kind::DealtProduct, PartyId::Client(owner)) => {
                let DealtProduct { round, elements } = DealtProduct::decode(content, &())?;
                let mut entry = entry("share of a dealt product");
                (entry.about.round, entry.about.operator) = (Some(round), Some(0));
                let samples = self.samples(owner);
                let rows = product_words(self.session, round, owner).checked_div(samples).unwrap_or(0);
                let entry = entry.of_owner(owner, (0..samples).collect());
                Ok(vec![entry.filled(
                    (rows, samples),
                    Numbers::Signed(self.words(elements, self.session.hops().words[0])),
                )])
            }
            (Kind::Dealing, PartyId::Client(owner)) => {
                let Dealing { request, dealt } = Dealing::decode(content, &())?;
                Ok(self.dealing(request, owner, dealt, &entry("share of what is dealt")))
            }
            (Kind::MaskedOpening, _) => self.opening(MaskedOpening::decode(content, &())?, &entry("share")),
            _ => Ok(Vec::new()),
        }
    }

    /// An operator of a client's model under both masks, and less this server's: under the other's alone.
    fn masked_model(&self, operator: usize, elements: &[u8], entry: &Entry) -> Vec<Opened> {
        let (words, bytes) = self.session.model_part(operator);
        let bits = self.session.hops().words[operator];
        let masked = self.words(elements.get(bytes).unwrap_or(&[]), bits);
        let mut entry = entry.clone();
        entry.about.operator = self.session.hops().is_deep().then_some(operator);
        let derived = self.masks.as_ref().zip(entry.about.round.zip(entry.about.client));
        let derived = derived.map(|(seed, (round, client))| {
            let own = mask_of(seed, round, client, words);
            let pairs = masked.iter().zip(own.expose());
            // E = w theta - U.
            let less = pairs.map(|(word, own)| centred(word.cast_unsigned().wrapping_add(*own), bits));
            let less: Vec<i64> = less.collect();
            entry.derived("masked-models", "masked model").filled((1, less.len()), Numbers::Signed(less))
        });
        let received = entry.filled((1, masked.len()), Numbers::Signed(masked));
        [received].into_iter().chain(derived).collect()
    }

    fn samples(&self, owner: usize) -> usize {
        self.session.hellos.get(owner).map_or(0, |hello| hello.samples as usize)
    }

    /// Words of so many bits in some bytes: those of smallest magnitude.
    fn words(&self, bytes: &[u8], bits: u32) -> Vec<i64> {
        unpack(bytes, bits.div_ceil(8) as usize).map(|word| centred(word, bits)).collect()
    }

    /// A seed that an owner shares with the server and, at the principal, the share of samples and labels that follows from it.
    fn seed(&self, owner: usize, content: &[u8], mut entry: Entry) -> Result<Vec<Opened>, CodecError> {
        let MaskSeed { seed } = MaskSeed::decode(content, &())?;
        let key = OwnerKey::new(seed.clone());
        entry.about.client = Some(owner);
        let mut arrays = vec![entry.clone().filled((1, 32), Numbers::Bytes(seed.expose().to_vec()))];
        if self.server == Server::Principal {
            let (chunks, inputs) = (self.session.chunks(owner), self.session.program().input_size);
            let labels = if chunks.is_single() { 0 } else { chunks.scores() * chunks.samples() };
            let mut words = key.of_owner("samples", 0, inputs * chunks.samples()).expose().clone();
            words.extend(key.of_owner("labels", 0, labels).expose());
            let mut entry = Entry { what: "share", file: "data-share".to_owned(), ..entry };
            entry.about.client = None;
            arrays.extend(self.data(owner, words, &entry));
        }
        Ok(arrays)
    }

    /// A share of samples and, where they are a factor, of labels.
    fn data(&self, owner: usize, mut words: Vec<u64>, entry: &Entry) -> Vec<Opened> {
        let (samples, inputs) = (self.samples(owner), self.session.program().input_size);
        let labels = words.split_off(words.len().min(inputs * samples));
        let bits = self.session.precision.operators[0].input.fractional_bits();
        let scale = Some(f64::powi(0.5, bits as i32));
        let (of_samples, of_labels) = (self.session.hops().words[0], self.session.widths().word);
        let signed = |words: Vec<u64>, bits: u32| {
            Numbers::Signed(words.into_iter().map(|word| centred(word, bits)).collect())
        };
        let of_owner = |entry: Entry| entry.of_owner(owner, (0..samples).collect());
        let mut arrays = vec![
            of_owner(Entry { scale, ..entry.clone() }).filled((inputs, samples), signed(words, of_samples)),
        ];
        if let Some(rows) = labels.len().checked_div(samples).filter(|rows| *rows > 0) {
            let entry = Entry { what: "label share", ..entry.clone() };
            arrays.push(of_owner(entry).filled((rows, samples), signed(labels, of_labels)));
        }
        arrays
    }

    /// The round of a test, and its coalitions that an owner does not know, with their numbers.
    fn models(&self, request: RequestId, owner: usize) -> Option<(RoundId, Vec<(usize, Coalition)>)> {
        let test = self.tests.get(&request)?;
        let is_secure =
            |&(_, coalition): &(usize, Coalition)| !self.session.knows(owner, test.round, coalition);
        Some((test.round, test.coalitions.iter().copied().enumerate().filter(is_secure).collect()))
    }

    /// The tested samples of an owner, and these in chunks.
    fn owner_part(&self, request: RequestId, owner: usize) -> Option<(Vec<usize>, Chunks)> {
        let samples = self.tests.get(&request)?.samples.as_ref();
        let (_, tested, chunks) = self.session.parts(samples).find(|(other, ..)| *other == owner)?;
        Some((tested.unwrap_or_else(|| (0..chunks.samples()).collect()), chunks))
    }

    /// What an owner dealt: numbers, planes, masks of right or wrong.
    fn dealing(&self, request: RequestId, owner: usize, dealt: &[u8], entry: &Entry) -> Vec<Opened> {
        let (Some((round, secure)), Some((tested, chunks))) =
            (self.models(request, owner), self.owner_part(request, owner))
        else {
            return Vec::new();
        };
        let mut arrays = Vec::new();
        let mut rest = dealt;
        for &(_, coalition) in &secure {
            for (first, shape) in chunks.iter() {
                let (own, behind) = rest.split_at(shape.dealt_len().min(rest.len()));
                rest = behind;
                let samples = tested[first..first + shape.samples()].to_vec();
                let entry = about(entry, request, (round, coalition)).of_owner(owner, samples);
                arrays.extend(self.dealt(&shape, own, &entry));
            }
        }
        arrays
    }

    /// What was dealt for one coalition and chunk.
    fn dealt(&self, shape: &Shape, dealt: &[u8], entry: &Entry) -> Vec<Opened> {
        let mut entry = entry.clone();
        let (mut arrays, mut rest) = (Vec::new(), dealt);
        entry.about.item = Some(0);
        for (index, array) in shape.dealt_arrays().enumerate() {
            let (own, behind) = rest.split_at((array.count * array.bytes()).min(rest.len()));
            rest = behind;
            let mut entry = entry.clone();
            entry.about.step = shape.hops().is_deep().then_some(index);
            let words = self.words(own, array.bits);
            arrays.push(entry.filled((1, words.len()), Numbers::Signed(words)));
        }
        let (planes, outcomes) = rest.split_at((8 * shape.all_dealt_planes()).min(rest.len()));
        entry.about.item = Some(1);
        let planes: Vec<u64> = unpack(planes, 8).collect();
        for (step, &stage) in shape.all_stages().iter().enumerate() {
            let of_stage = planes.get(shape.dealt_range(stage)).unwrap_or(&[]);
            if !of_stage.is_empty() {
                let mut entry = entry.clone();
                entry.about.step = Some(step);
                arrays.push(of_planes(shape.compared_at(stage).words, of_stage, entry));
            }
        }
        entry.about.item = Some(2);
        let outcomes = unpack(outcomes, shape.outcome_bytes());
        let size = (1, shape.dealt_outcomes());
        arrays.push(match shape.outcome {
            Outcome::Total | Outcome::Classes => {
                entry.filled(size, Numbers::Signed(outcomes.map(|word| word as i64).collect()))
            }
            Outcome::Each => entry.filled(size, Numbers::Ring(outcomes.collect())),
        });
        arrays
    }

    /// The other server's part of what is opened at a stage, and what is open then, less this server's masks.
    fn opening(
        &mut self,
        MaskedOpening { request, owner, stage: index, masked }: MaskedOpening<'_>,
        entry: &Entry,
    ) -> Result<Vec<Opened>, CodecError> {
        let own = self.own.get(&(request, owner, index)).copied();
        let (models, key) = (self.models(request, owner), self.keys.get(&owner).cloned());
        let (Some(mut own), Some((round, secure)), Some(key), Some((tested, chunks))) =
            (own, models, key, self.owner_part(request, owner))
        else {
            return Ok(Vec::new());
        };
        let stage = chunks.stage(index).ok_or(CodecError::Value { what: "stage" })?;
        let what = opened_at(stage);
        let mut dealt = self.dealt.get(&(request, owner)).copied();
        let (mut arrays, mut other) = (Vec::new(), masked);
        for &(number, coalition) in &secure {
            let scales = self.session.scales(round, coalition);
            for (first, shape) in chunks.iter() {
                let dealt = dealt.as_mut().map(|dealt| take(dealt, shape.dealt_len()));
                let place = Place { round, coalition, first };
                let evaluator = Evaluator {
                    shape: &shape,
                    server: self.server,
                    key: &key,
                    place,
                    scales: &scales,
                    dealt,
                };
                let length = shape.opened_len(index);
                let (of_own, of_other) = (take(&mut own, length), take(&mut other, length));
                let opened = evaluator.open(index, of_own, of_other);
                self.count((request, number, owner), &evaluator, index, &opened);
                let samples = tested[first..first + shape.samples()].to_vec();
                let mut entry = about(entry, request, (round, coalition)).of_owner(owner, samples);
                entry.about.step = Some(index);
                let mut derived = entry.derived("masked-openings", what);
                derived.disclosure = Some(Disclosure::MaskedFactors);
                let masks = key.words(place, Purpose::Opening(index), shape.opened(stage));
                let unmasked =
                    opened.iter().zip(masks.expose()).map(|(opened, mask)| match stage.is_numbers() {
                        true => opened.wrapping_sub(*mask),
                        false => opened ^ mask,
                    });
                let parts = unpack(of_other, shape.bytes(stage)).collect();
                arrays.push(self.of_stage(&shape, stage, parts, entry));
                arrays.push(self.of_stage(&shape, stage, unmasked.collect(), derived));
            }
        }
        Ok(arrays)
    }

    /// Adds up the server's shares of what a stage finds.
    fn count(
        &mut self,
        (request, number, owner): (RequestId, usize, usize),
        evaluator: &Evaluator<'_>,
        stage: usize,
        opened: &[u64],
    ) {
        let shape = evaluator.shape;
        if let Some(count) = evaluator.overflows(stage, opened) {
            let sum = self.overflows.entry((request, number)).or_default();
            *sum = shape.overflows(*sum, count);
        }
        if stage + 1 == shape.stages() {
            let found = evaluator.outcome(opened);
            let before = self.found.entry((request, number, owner)).or_default();
            super::server::add_found(shape, before, found);
        }
    }

    /// Numbers or planes of a stage.
    fn of_stage(&self, shape: &Shape, stage: Stage, opened: Vec<u64>, mut entry: Entry) -> Opened {
        if !stage.is_numbers() {
            return of_planes(shape.plane_words(stage), &opened, entry);
        }
        entry.about.operator = shape.operator_at(stage);
        if !shape.hops().is_deep() {
            entry.about.positions = Some((0, 1));
        }
        let model = entry.about.round.zip(entry.about.coalition);
        if let Some(meaning) = model.and_then(|model| self.session.meaning(stage, model)) {
            entry.scale = Some(meaning.scale);
            entry.offset = Some(meaning.offset).filter(|offset| *offset != 0);
        }
        let bits = 8 * shape.bytes(stage) as u32;
        let words: Vec<i64> = opened.into_iter().map(|word| centred(word, bits)).collect();
        let columns = shape.columns_at(stage);
        let rows = words.len().checked_div(columns).unwrap_or(0);
        entry.filled((rows, columns), Numbers::Signed(words))
    }

    /// The server's share of what is found for a coalition of a test: a total, or planes owner by owner.
    fn own_share(&self, test: &BlindTest, (index, coalition): (usize, Coalition)) -> Vec<u64> {
        let place = Place::of_model(test.round, coalition);
        let mut found = Vec::new();
        for (owner, _, shape) in self.session.parts(test.samples.as_ref()) {
            let share = match (self.session.knows(owner, test.round, coalition), self.keys.get(&owner)) {
                (true, Some(key)) => {
                    key.words(place, Purpose::OwnOutcome, shape.outcome_words()).expose().clone()
                }
                _ => self.found.get(&(test.request, index, owner)).cloned().unwrap_or_default(),
            };
            match self.session.outcome() {
                Outcome::Total | Outcome::Classes => {
                    found.resize(shape.outcome_words(), 0);
                    for shares in share.chunks_exact(found.len()) {
                        let pairs = found.iter_mut().zip(shares);
                        pairs.for_each(|(sum, share)| *sum = shape.found(*sum, *share));
                    }
                }
                Outcome::Each => found.extend(share),
            }
        }
        found
    }

    /// What is found over all owners: the auxiliary's share, and with the principal's the total, or which samples are right.
    fn outcomes(&self, number: usize, message: &SeenMessage) -> Result<Vec<Opened>, CodecError> {
        let OutcomeShare { request, found } = OutcomeShare::decode(message.content(), &())?;
        let Some(test) = self.tests.get(&request) else { return Ok(Vec::new()) };
        let (found, over) = found.split_at(found.len() - self.session.overflows_len(test.coalitions.len()));
        let mut shares = unpack(found, self.session.outcome_bytes());
        let mut arrays = self.range_counts(number, message, (request, test), over);
        for (index, &coalition) in test.coalitions.iter().enumerate() {
            let own = self.own_share(test, (index, coalition));
            let other: Vec<u64> = shares.by_ref().take(own.len()).collect();
            let entry = Entry::new(message.kind, "share", Some(message.from), vec![number]);
            let entry = about(&entry, request, (test.round, coalition));
            let pairs = own.iter().zip(&other);
            match self.session.outcome() {
                outcome @ (Outcome::Total | Outcome::Classes) => {
                    let mask = self.session.widths().count_mask();
                    let totals = pairs.map(|(own, other)| (own.wrapping_add(*other) & mask) as i64).collect();
                    let other = other.iter().map(|share| *share as i64).collect();
                    let mut sum = entry.derived("counts", "count");
                    let is_total = outcome == Outcome::Total;
                    sum.disclosure =
                        Some(if is_total { Disclosure::Counts } else { Disclosure::ClassCounts });
                    arrays.push(entry.filled((1, own.len()), Numbers::Signed(other)));
                    arrays.push(sum.filled((1, own.len()), Numbers::Signed(totals)));
                }
                Outcome::Each => {
                    let planes: Vec<u64> = pairs.map(|(own, other)| own ^ other).collect();
                    let right = self.session.right(test.samples.as_ref(), &planes);
                    let mut sum = entry.derived("outcomes", "right or wrong");
                    sum.disclosure = Some(Disclosure::RightOrWrong);
                    arrays.push(entry.filled((1, other.len()), Numbers::Ring(other)));
                    let right = (0..right.total()).map(|sample| i64::from(right.contains(sample)));
                    let right: Vec<i64> = right.collect();
                    arrays.push(sum.filled((1, right.len()), Numbers::Signed(right)));
                }
            }
        }
        Ok(arrays)
    }
}

impl BlindReading<'_> {
    /// How many numbers are out of range over all owners: the auxiliary's share, and with the principal's the total.
    fn range_counts(
        &self,
        number: usize,
        message: &SeenMessage,
        (request, test): (RequestId, &BlindTest),
        shares: &[u8],
    ) -> Vec<Opened> {
        let mut arrays = Vec::new();
        let bytes = self.session.overflow_bytes();
        if bytes == 0 {
            return arrays;
        }
        for ((index, &coalition), other) in test.coalitions.iter().enumerate().zip(unpack(shares, bytes)) {
            let own = self.overflows.get(&(request, index)).copied().unwrap_or(0);
            let entry = Entry::new(message.kind, "range share", Some(message.from), vec![number]);
            let entry = about(&entry, request, (test.round, coalition));
            let mut sum = entry.derived("range-counts", "numbers out of range");
            sum.disclosure = Some(Disclosure::Overflows);
            arrays.push(entry.filled((1, 1), Numbers::Signed(vec![other as i64])));
            arrays.push(
                sum.filled((1, 1), Numbers::Signed(vec![self.session.add_overflows(own, other) as i64])),
            );
        }
        arrays
    }
}

/// What a stage opens, in words.
pub(super) fn opened_at(stage: Stage) -> &'static str {
    match stage {
        Stage::Outputs(_) | Stage::Scores => "masked outputs",
        Stage::Inputs(_) => "masked inputs",
        Stage::Margins => "masked margins",
        Stage::Larger(..) => "masked larger outputs",
        Stage::PairComparison(..)
        | Stage::RangeComparison(..)
        | Stage::HopComparison(..)
        | Stage::Comparison(_)
        | Stage::Conjunction(_) => "masked bits",
    }
}

/// An array about a coalition of a test.
fn about(entry: &Entry, request: RequestId, (round, coalition): (RoundId, Coalition)) -> Entry {
    let mut entry = entry.clone();
    entry.about.test = Some(request.to_wire());
    (entry.about.round, entry.about.coalition) = (Some(round), Some(coalition));
    entry
}

/// Planes: a row for each, a column for each block of 64 samples.
fn of_planes(words: usize, planes: &[u64], entry: Entry) -> Opened {
    let rows = planes.len().checked_div(words).unwrap_or(0);
    entry.filled((rows, words), Numbers::Ring(planes.to_vec()))
}

/// Takes so many bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (part, rest) = bytes.split_at(length.min(bytes.len()));
    *bytes = rest;
    part
}
