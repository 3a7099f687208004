//! What a server does for one coalition on some samples of one owner, stage by stage. Both servers do the same with their own shares; what
//! they hold between two stages is what was opened.

use std::{ops::Range, sync::Arc};

use secsv_algebra::Secret;

use super::{
    comparison::Before,
    curve::Knots,
    dealt::DealtNumbers,
    gates::{GateInput, items, results},
    hops::Scales,
    keys::{OwnerKey, Place, Purpose},
    lanes::{LANES, planes},
    largest::LargerInput,
    later::Later,
    range_check::{checked_planes, overflows},
    shape::{Outcome, Shape, Stage},
    sums::Sums,
    wiring::{Term, spread},
    words::{pack, unpack},
};
use crate::{Error, message::Server};

/// One server, one coalition, some samples of one owner.
pub(crate) struct Evaluator<'a> {
    pub shape: &'a Shape,
    pub server: Server,
    pub key: &'a OwnerKey,
    pub place: Place,
    /// The coalition's public numbers.
    pub scales: &'a Scales,
    /// What the owner dealt, at the auxiliary.
    pub dealt: Option<&'a [u8]>,
}

/// What a unit has opened.
#[derive(Clone, Copy)]
pub(crate) struct Opened<'a> {
    /// At the stage before.
    pub opened: &'a [u64],
    /// What later stages need of it: see [`Evaluator::known`].
    pub known: &'a Memory,
}

/// What later stages need of what was opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Numbers under masks, and planes of what is compared next.
    pub numbers: Vec<u64>,
    /// Values that later sums take, by their numbers.
    pub values: Vec<(usize, Arc<Vec<u64>>)>,
}

impl Memory {
    fn value(&self, value: usize) -> &[u64] {
        self.values.iter().find(|(other, _)| *other == value).map_or(&[], |(_, opened)| opened)
    }

    /// The same with other numbers.
    fn with(&self, numbers: Vec<u64>) -> Self {
        Self { numbers, values: self.values.clone() }
    }
}

/// What a server has beside what was opened and dealt, where a stage needs it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held<'a> {
    /// Its share of the labels, one for each score.
    pub labels: &'a [u64],
    /// Its share of the samples, a row for each number.
    pub samples: &'a [u64],
    /// Its parts of the operators whose outputs are opened.
    pub later: &'a [Later<'a>],
}

impl Evaluator<'_> {
    /// Where the slopes of a hop's function change.
    fn knots(&self, hop: usize) -> Option<&Knots> {
        self.scales.knots.get(hop)?.as_ref()
    }

    /// The server's share of the constant 1 in planes.
    fn one(&self) -> u64 {
        u64::from(self.is_principal()).wrapping_neg()
    }

    fn is_principal(&self) -> bool {
        self.server == Server::Principal
    }

    /// The server's masks of what is opened at a stage.
    fn masks(&self, stage: Stage) -> Secret<Vec<u64>> {
        self.masks_in(stage, 0..self.shape.opened(stage))
    }

    /// The server's masks of some words of what is opened at a stage.
    fn masks_in(&self, stage: Stage, words: Range<usize>) -> Secret<Vec<u64>> {
        self.key.words_in(self.place, Purpose::Opening(self.shape.index(stage)), words)
    }

    /// The server's share of some words that were dealt, which stand at `first` at the auxiliary.
    fn dealt(&self, dealt: &[u8], first: usize, count: usize, bytes: usize) -> Secret<Vec<u64>> {
        let packed = dealt.get(first..first + count * bytes).unwrap_or(&[]);
        let mut words = Secret::new(Vec::with_capacity(count));
        words.expose_mut().extend(unpack(packed, bytes));
        words.expose_mut().resize(count, 0);
        words
    }

    /// The server's share of numbers that were dealt.
    fn dealt_numbers(&self, what: DealtNumbers) -> Secret<Vec<u64>> {
        let Some((index, first, array)) = self.shape.dealt_array(what) else {
            return Secret::new(Vec::new());
        };
        match self.dealt {
            None => self.key.words(self.place, Purpose::DealtNumbers(index), array.count),
            Some(dealt) => self.dealt(dealt, first, array.count, array.bytes()),
        }
    }

    /// The server's share of the planes that were dealt for a stage.
    fn dealt_planes(&self, stage: Stage) -> Secret<Vec<u64>> {
        let range = self.shape.dealt_range(stage);
        match self.dealt {
            None => self.key.words_in(self.place, Purpose::DealtPlanes, range),
            Some(dealt) => {
                let first = self.shape.dealt_numbers_len() + size_of::<u64>() * range.start;
                self.dealt(dealt, first, range.len(), size_of::<u64>())
            }
        }
    }

    fn dealt_outcomes(&self) -> Secret<Vec<u64>> {
        let (shape, count) = (self.shape, self.shape.dealt_outcomes());
        match self.dealt {
            None => self.key.words(self.place, Purpose::DealtOutcomes, count),
            Some(dealt) => {
                let first = shape.dealt_numbers_len() + size_of::<u64>() * shape.all_dealt_planes();
                self.dealt(dealt, first, count, shape.outcome_bytes())
            }
        }
    }

    /// Appends the server's first message. `outputs` are its shares of the first operator's outputs, row by row.
    pub(crate) fn begin(&self, outputs: &[u64], out: &mut Vec<u8>) {
        let first = self.shape.stage(0).unwrap_or(Stage::Scores);
        self.outputs(first, outputs, out);
    }

    /// Appends shares of an operator's outputs, under their masks.
    fn outputs(&self, stage: Stage, outputs: &[u64], out: &mut Vec<u8>) {
        let masks = self.masks(stage);
        let offset = match stage {
            Stage::Outputs(hop) if self.is_principal() => {
                self.shape.hops.all[hop].offset(self.scales.dropped[hop])
            }
            _ => 0,
        };
        let sums = match stage {
            Stage::Outputs(hop) => &self.shape.hops.all[hop].before,
            _ => &self.shape.hops.scores,
        };
        let summed = Secret::new(sums.as_ref().map(|sums| sums.words(outputs, self.shape.samples)));
        let outputs = summed.expose().as_deref().unwrap_or(outputs);
        let factor = self.shape.node_of(stage).map_or(1, |(node, _)| self.scales.sum(node));
        let sums = outputs.iter().zip(masks.expose());
        let sums =
            sums.map(|(output, mask)| output.wrapping_mul(factor).wrapping_add(*mask).wrapping_add(offset));
        pack(sums, self.shape.bytes(stage), out);
    }

    /// What both servers' messages of a stage open.
    pub(crate) fn open(&self, stage: usize, own: &[u8], other: &[u8]) -> Vec<u64> {
        let Some(stage) = self.shape.stage(stage) else { return Vec::new() };
        let bytes = self.shape.bytes(stage);
        let pairs = unpack(own, bytes).zip(unpack(other, bytes));
        if stage.is_numbers() {
            let mask = self.shape.mask(stage);
            return pairs.map(|(own, other)| own.wrapping_add(other) & mask).collect();
        }
        pairs.map(|(own, other)| own ^ other).collect()
    }

    /// What later stages need of what a stage opened, with what was known before: of a hop's outputs T under its mask, the larger
    /// ones that were found since, and planes of what is compared next; of scores or margins that are compared the planes.
    pub(crate) fn known(&self, stage: usize, opened: &[u64], before: &Memory) -> Option<Memory> {
        match self.shape.stage(stage)? {
            Stage::Outputs(index) => {
                let (hop, dropped) = (&self.shape.hops.all[index], self.scales.dropped[index]);
                let mask = super::hops::mask(hop.kept);
                let known = opened.iter().map(|opened| (opened >> dropped) & mask).collect();
                // A check comes before everything else that is found of them.
                let known = match self.shape.hops.is_checked(index) {
                    true => known,
                    false => self.compared_next(index, 0, known),
                };
                let mut memory = before.with(known);
                let wiring = &self.shape.hops.wiring;
                memory.values.retain(|(value, _)| wiring.last_use(*value) > Some(index));
                Some(memory)
            }
            Stage::RangeComparison(index, step)
                if step + 1 == self.shape.hops.all[index].comparison.steps() =>
            {
                Some(before.with(self.compared_next(index, 0, before.numbers.clone())))
            }
            Stage::Larger(index, level) => {
                let hop = &self.shape.hops.all[index];
                let largest = hop.largest.as_ref()?;
                let mut known = before.numbers[..largest.known(level, self.shape.samples)].to_vec();
                known.extend(opened.iter().map(|opened| opened & super::hops::mask(hop.kept)));
                Some(before.with(self.compared_next(index, level + 1, known)))
            }
            Stage::Inputs(index) => {
                let mut memory = before.with(Vec::new());
                memory.values.push((index + 1, Arc::new(opened.to_vec())));
                Some(memory)
            }
            stage if stage == self.shape.compared_stage() => {
                let numbers = self.shape.compared_planes(opened).expose().clone();
                Some(Memory { numbers, values: Vec::new() })
            }
            _ => None,
        }
    }

    /// Numbers of a hop before a level of pairs, with the planes of what is compared next: of pairs or, after the last level, of what
    /// the gate takes, which alone is needed then.
    fn compared_next(&self, index: usize, level: usize, mut known: Vec<u64>) -> Vec<u64> {
        let (hop, samples) = (&self.shape.hops.all[index], self.shape.samples);
        match &hop.largest {
            Some(largest) if level < largest.levels() => {
                let differences = largest.differences(level, &known, samples, hop.kept);
                known.extend(planes(differences.expose(), hop.kept as usize));
                known
            }
            largest => {
                if let Some(largest) = largest {
                    known = largest.results(&known, samples);
                }
                known.extend(hop.planes(&known, self.knots(index)));
                known
            }
        }
    }

    /// Appends shares of the larger numbers of a level of pairs, under their masks.
    fn larger(&self, (index, level): (usize, usize), state: Opened<'_>, out: &mut Vec<u8>) {
        let (shape, hop) = (self.shape, &self.shape.hops.all[index]);
        let Some(largest) = &hop.largest else { return };
        let mut masks = self.dealt_numbers(DealtNumbers::Compared(index));
        for before in 0..level {
            masks.expose_mut().extend(self.masks(Stage::Larger(index, before)).expose());
        }
        let [sign, sign_mask] =
            [DealtNumbers::PairSign(index, level), DealtNumbers::PairSignMask(index, level)]
                .map(|what| self.dealt_numbers(what));
        let input = LargerInput {
            public: &state.known.numbers[..largest.known(level, shape.samples)],
            masks: masks.expose(),
            signs: state.opened,
            dealt: [sign.expose(), sign_mask.expose()],
            samples: shape.samples,
            one: self.is_principal().into(),
        };
        let found = largest.larger(level, &input);
        let stage = Stage::Larger(index, level);
        let masks = self.masks(stage);
        let sums = found.expose().iter().zip(masks.expose());
        pack(sums.map(|(share, mask)| share.wrapping_add(*mask)), shape.bytes(stage), out);
    }

    /// Appends the server's message of a stage behind the first, from what was opened at the stage before.
    pub(crate) fn message(
        &self,
        stage: usize,
        state: Opened<'_>,
        held: Held<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Some(stage) = self.shape.stage(stage) else { return Ok(()) };
        match stage {
            Stage::Margins => self.margins(state.opened, held.labels, out),
            Stage::Inputs(hop) => self.inputs(hop, state, out),
            Stage::Larger(hop, level) => self.larger((hop, level), state, out),
            Stage::Outputs(_) | Stage::Scores => {
                let sum = self.sum(stage, state.known, held)?;
                self.outputs(stage, sum.expose(), out);
            }
            _ => {
                let shares = self.planes(stage, state);
                let masks = self.masks(stage);
                pack(shares.expose().iter().zip(masks.expose()).map(|(share, mask)| share ^ mask), 8, out);
            }
        }
        Ok(())
    }

    /// Shares of what a stage opens: outputs of operators and values, added up.
    fn sum(&self, stage: Stage, known: &Memory, held: Held<'_>) -> Result<Secret<Vec<u64>>, Error> {
        let Some((index, node)) = self.shape.node_of(stage) else { return Ok(Secret::new(Vec::new())) };
        let mut sum = Secret::new(Vec::<u64>::new());
        for term in 0..node.terms.len() {
            let shares = self.term((index, term), stage, known, held)?;
            sum.expose_mut().resize(shares.expose().len(), 0);
            let pairs = sum.expose_mut().iter_mut().zip(shares.expose());
            pairs.for_each(|(sum, share)| *sum = sum.wrapping_add(*share));
        }
        Ok(sum)
    }

    /// Shares of one term of a sum.
    fn term(
        &self,
        (index, term): (usize, usize),
        stage: Stage,
        known: &Memory,
        held: Held<'_>,
    ) -> Result<Secret<Vec<u64>>, Error> {
        let (one, columns) = (u64::from(self.is_principal()), self.shape.columns_at(stage));
        let node = &self.shape.hops.wiring.nodes[index];
        let taken = &node.terms[term];
        let factor = |place: usize| self.scales.value((index, term, place));
        let part = |operator: usize| {
            let later = held.later.iter().find(|later| later.operator == operator);
            later.ok_or(Error::Local { what: "an operator's models" })
        };
        match taken {
            Term::Constants(operator) => {
                Ok(Secret::new(spread(part(*operator)?.biases(), (node.size, 1), columns)))
            }
            Term::Product { operator, .. } => {
                let (public, masks) = self.taken((taken, node.size), known, held, factor);
                let later = part(*operator)?;
                let dealt = self.dealt_numbers(DealtNumbers::Products(index, term));
                let outputs = later.outputs(&public, masks, dealt)?;
                // In a chain of operators sums put them in order.
                Ok(match later.order().filter(|_| !self.shape.hops.nodes.is_empty()) {
                    Some(order) => Secret::new(Sums::order(order).words(outputs.expose(), columns)),
                    None => outputs,
                })
            }
            Term::Scaled { positions, .. } => {
                let (public, masks) = self.taken((taken, node.size), known, held, |_| 1);
                let channels = node.size / positions;
                let of_factors = public.len() - node.size * columns;
                let spread = |words: &[u64]| spread(&words[..of_factors], (channels, *positions), columns);
                let (g, u) = (spread(&public), Secret::new(spread(masks.expose())));
                let (x, v) = (&public[of_factors..], &masks.expose()[of_factors..]);
                let dealt = self.dealt_numbers(DealtNumbers::Scaled(index, term));
                let numbers = g.iter().zip(u.expose()).zip(x.iter().zip(v)).zip(dealt.expose());
                // (g - u) (x - v), where both servers see g and x.
                let shares = numbers.map(|(((g, u), (x, v)), uv)| {
                    let crossed = g.wrapping_mul(*v).wrapping_add(u.wrapping_mul(*x));
                    (g.wrapping_mul(*x) * one).wrapping_sub(crossed).wrapping_add(*uv).wrapping_mul(factor(0))
                });
                Ok(Secret::new(shares.collect()))
            }
            Term::Values(_) | Term::Part { .. } | Term::Spread { .. } => {
                let (public, masks) = self.taken((taken, node.size), known, held, factor);
                let pairs = public.iter().zip(masks.expose());
                let shares = Secret::new(pairs.map(|(x, v)| (x * one).wrapping_sub(*v)).collect::<Vec<_>>());
                Ok(match taken {
                    Term::Spread { positions, .. } => {
                        Secret::new(spread(shares.expose(), (node.size / positions, *positions), columns))
                    }
                    _ => shares,
                })
            }
        }
    }

    /// What was opened of the values that a term of a sum of so many takes, and the server's masks of it, each times its factor.
    fn taken(
        &self,
        (term, size): (&Term, usize),
        known: &Memory,
        held: Held<'_>,
        factor: impl Fn(usize) -> u64,
    ) -> (Vec<u64>, Secret<Vec<u64>>) {
        let (mut public, mut masks) = (Vec::new(), Secret::new(Vec::new()));
        for (place, of) in term.taken(size).into_iter().enumerate() {
            let scaled = |word: &u64| word.wrapping_mul(factor(place));
            let (value, opened) = (of.0, known.value(of.0));
            match value.checked_sub(1) {
                Some(hop) => {
                    let words = self.shape.words_of(&of, opened.len());
                    let own = self.masks_in(Stage::Inputs(hop), words.clone());
                    public.extend(opened.get(words).unwrap_or(&[]).iter().map(scaled));
                    masks.expose_mut().extend(own.expose().iter().map(scaled));
                }
                // A server's share of a sample is less no mask.
                None => {
                    public.resize(public.len() + held.samples.len(), 0);
                    masks.expose_mut().extend(held.samples.iter().map(|word| scaled(&word.wrapping_neg())));
                }
            }
        }
        (public, masks)
    }

    /// Shares of the next operator's inputs, under their masks.
    fn inputs(&self, index: usize, Opened { opened, known }: Opened<'_>, out: &mut Vec<u8>) {
        let (shape, hop) = (self.shape, &self.shape.hops.all[index]);
        let dealt = items(&hop.gate).into_iter();
        let dealt: Vec<_> = dealt.map(|item| self.dealt_numbers(DealtNumbers::Item(index, item))).collect();
        let input = GateInput {
            public: &known.numbers[..hop.gated() * shape.columns(index)],
            // Signs were opened at the stage before, if there are any.
            signs: opened,
            knots: self.knots(index),
            dealt: &dealt,
            one: self.is_principal().into(),
        };
        let mut found = results(hop, &input);
        if let Some(sums) = &hop.after {
            found = Secret::new(sums.words(found.expose(), shape.samples));
        }
        let stage = Stage::Inputs(index);
        let masks = self.masks(stage);
        let sums = found.expose().iter().zip(masks.expose());
        pack(sums.map(|(share, mask)| share.wrapping_add(*mask)), shape.bytes(stage), out);
    }

    /// What the true class's score is above every class's.
    fn margins(&self, opened: &[u64], labels: &[u64], out: &mut Vec<u8>) {
        let (shape, samples, widths) = (self.shape, self.shape.samples, self.shape.widths);
        let (scores, masks) = (self.masks(Stage::Scores), self.masks(Stage::Margins));
        // The true class's score under its mask, less the mask.
        let mut of_label = self.dealt_numbers(DealtNumbers::TrueScore);
        of_label.expose_mut().iter_mut().for_each(|word| *word = word.wrapping_neg());
        for (opened, labels) in opened.chunks_exact(samples.max(1)).zip(labels.chunks_exact(samples.max(1))) {
            for ((sum, opened), label) in of_label.expose_mut().iter_mut().zip(opened).zip(labels) {
                *sum = sum.wrapping_add(opened.wrapping_mul(*label));
            }
        }
        let one = u64::from(self.is_principal());
        for class in 0..shape.classes {
            let masks = &masks.expose()[class * samples..][..samples];
            let sums = of_label.expose().iter().zip(masks).map(|(sum, mask)| sum.wrapping_add(*mask));
            if class < shape.rows {
                let (opened, own) = (&opened[class * samples..], &scores.expose()[class * samples..]);
                let scores = opened.iter().zip(own).map(|(opened, own)| own.wrapping_sub(one * opened));
                let margins = sums.zip(scores).map(|(sum, score)| sum.wrapping_add(score));
                pack(margins, widths.bytes(), out);
            } else {
                pack(sums, widths.bytes(), out);
            }
        }
    }

    /// Shares of the planes that a stage opens.
    fn planes(&self, stage: Stage, Opened { opened, known }: Opened<'_>) -> Secret<Vec<u64>> {
        let (shape, one) = (self.shape, self.one());
        let before = shape.stage(shape.index(stage).wrapping_sub(1)).unwrap_or(Stage::Scores);
        let (opened, masks) = match before.is_numbers() {
            true => (&[][..], Secret::new(Vec::new())),
            false => (opened, self.masks(before)),
        };
        let (dealt, before) = (self.dealt_planes(stage), Before { opened, masks: masks.expose() });
        let mut shares = Secret::new(Vec::with_capacity(shape.opened(stage)));
        let (out, dealt) = (shares.expose_mut(), dealt.expose());
        let (compared, known) = (shape.compared_at(stage), &known.numbers[..]);
        let (words, of_conjunction) = ((compared, one), (compared.words, one));
        match stage {
            Stage::RangeComparison(index, step) => {
                let hop = &shape.hops.all[index];
                let public = checked_planes(hop, &known[..hop.numbers * shape.samples]);
                hop.comparison.step(step, &public, before, dealt, words, out);
            }
            Stage::HopComparison(index, step) => {
                let hop = &shape.hops.all[index];
                let public = &known[hop.gated() * shape.columns(index)..];
                hop.comparison.step(step, public, before, dealt, words, out);
            }
            Stage::PairComparison(index, level, step) => {
                let hop = &shape.hops.all[index];
                let numbers = hop.largest.as_ref().map_or(0, |largest| largest.known(level, shape.samples));
                hop.comparison.step(step, &known[numbers..], before, dealt, words, out);
            }
            Stage::Comparison(step) => shape.comparison.step(step, known, before, dealt, words, out),
            Stage::Conjunction(level) => shape.conjunction.join(level, before, dealt, of_conjunction, out),
            Stage::Outputs(_) | Stage::Larger(..) | Stage::Inputs(_) | Stage::Scores | Stage::Margins => {}
        }
        shares
    }

    /// The server's share of how many numbers a stage found to be out of range, if it is one that does.
    pub(crate) fn overflows(&self, stage: usize, opened: &[u64]) -> Option<u64> {
        let Some(Stage::RangeComparison(hop, step)) = self.shape.stage(stage) else { return None };
        if step + 1 < self.shape.hops.all[hop].comparison.steps() {
            return None;
        }
        let dealt = self.dealt_numbers(DealtNumbers::OverflowMask(hop));
        Some(overflows(opened, dealt.expose(), self.is_principal().into()))
    }

    /// The server's share of what is found, from what the last stage opened.
    pub(crate) fn outcome(&self, opened: &[u64]) -> Vec<u64> {
        let dealt = self.dealt_outcomes();
        let one = u64::from(self.is_principal());
        match self.shape.outcome {
            Outcome::Each => {
                let planes = dealt.expose().iter().zip(opened);
                planes.map(|(share, opened)| share ^ (opened & self.one())).collect()
            }
            Outcome::Classes => self.of_classes(dealt.expose(), opened),
            Outcome::Total => {
                let sum = dealt.expose().iter().enumerate().fold(0u64, |sum, (sample, share)| {
                    let bit = opened[sample / LANES] >> (sample % LANES) & 1;
                    let signed = if bit == 1 { share.wrapping_neg() } else { *share };
                    sum.wrapping_add(signed).wrapping_add(bit * one)
                });
                vec![sum & self.shape.widths.count_mask()]
            }
        }
    }

    /// The server's shares of how many samples of each class are right, then of how many are wrong. Every sum runs over all
    /// samples, whatever their class: where an opened bit is 1, what was dealt of right and of wrong ones changes places.
    fn of_classes(&self, dealt: &[u64], opened: &[u64]) -> Vec<u64> {
        let (samples, classes) = (self.shape.samples, self.shape.classes);
        let (mut right, mut wrong) = (vec![0u64; classes], vec![0u64; classes]);
        let (of_mask, of_opposite) = dealt.split_at(classes * samples);
        let rows = of_mask.chunks_exact(samples.max(1)).zip(of_opposite.chunks_exact(samples.max(1)));
        for ((right, wrong), (of_mask, of_opposite)) in right.iter_mut().zip(&mut wrong).zip(rows) {
            for (sample, (a, b)) in of_mask.iter().zip(of_opposite).enumerate() {
                let changes = (opened[sample / LANES] >> (sample % LANES) & 1).wrapping_neg();
                let difference = (a ^ b) & changes;
                *right = right.wrapping_add(a ^ difference);
                *wrong = wrong.wrapping_add(b ^ difference);
            }
        }
        let mask = self.shape.widths.count_mask();
        right.into_iter().chain(wrong).map(|sum| sum & mask).collect()
    }
}
