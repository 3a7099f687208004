//! The file's structure, what it must never contain, and its size.

use std::collections::BTreeMap;

use scraper::{Html, Selector};
use secsv_evaluation::{
    ApproximateResult, EncryptionParameters, EvaluationResult, ExposureResult, ExposureRow, Operations,
    OverflowResult, OverflowedModel, RoundResult, SecurityResult, Timing, Traffic, UtilityResult,
};
use secsv_federation::{ClientId, Coalition, RoundId};

use super::render;
use crate::{failure::check_ranges, value_table};

fn id(place: usize) -> ClientId {
    ClientId::new(format!("silo-{place}")).unwrap()
}

fn ids(coalition: Coalition) -> Vec<ClientId> {
    coalition.members().map(id).collect()
}

fn parameters() -> EncryptionParameters {
    EncryptionParameters {
        preset: "standard".to_owned(),
        degree: 8192,
        modulus_bits: 162,
        plaintext_bits: 40,
        security_bits: 128,
    }
}

/// Everybody in every round, but client 1 misses round 2. The last client does harm.
#[expect(clippy::too_many_lines, reason = "one result, field by field")]
fn result(clients: usize, rounds: u32, coalitions: usize, sampled: bool) -> EvaluationResult {
    let everybody = Coalition::first(clients);
    let present = |round: u32| if round == 2 { everybody.without(1) } else { everybody };
    let values = |round: u32, unit: f64| -> BTreeMap<ClientId, f64> {
        let value = |client: usize| if client + 1 == clients { -unit } else { unit * (client + 1) as f64 };
        let of = |client| (id(client), if present(round).contains(client) { value(client) } else { 0.0 });
        everybody.members().map(of).collect()
    };
    let mut utilities = Vec::new();
    for round in 1..=rounds {
        let rest =
            present(round).subsets().filter(|s| !s.is_empty() && *s != present(round)).take(coalitions);
        for coalition in [Coalition::EMPTY].into_iter().chain(rest).chain([present(round)]) {
            let correct = 300 + 20 * (round as usize - 1) + 2 * coalition.len();
            let tested = if coalition.len() > 1 { 400 } else { 1000 };
            let coalition = ids(coalition);
            utilities.push(UtilityResult {
                round: RoundId(round),
                coalition,
                correct,
                total: 1000,
                tested,
                wrongly_skipped: None,
                correct_of_classes: Vec::new(),
            });
        }
    }
    let error =
        |unit: f64| sampled.then(|| values(1, unit).into_iter().map(|(id, v)| (id, v.abs())).collect());
    EvaluationResult {
        schema: secsv_evaluation::SCHEMA.to_owned(),
        version: secsv_evaluation::VERSION,
        made: None,
        federation: None,
        test_noise: None,
        protocol: "secsv".to_owned(),
        estimator: if sampled { "permutation" } else { "exact" }.to_owned(),
        utility: "accuracy".to_owned(),
        class_samples: Vec::new(),
        skip: true,
        clients: ids(everybody),
        fsv: values(1, 0.01 * f64::from(rounds)),
        standard_error: error(0.002),
        ssv: (1..=rounds)
            .map(|round| RoundResult {
                round: RoundId(round),
                values: values(round, 0.01),
                standard_error: error(0.001),
            })
            .collect(),
        utilities,
        timing: Timing { wall_s: 12.5, encrypt_s: 0.25, ..Timing::default() },
        traffic: vec![Traffic { from: "silo-0".to_owned(), to: "principal".to_owned(), bytes: 1_234_567 }],
        operations: Operations { ct_pt_mul: 31, ..Operations::default() },
        parameters: Some(parameters()),
        seed: 4711,
        security: None,
        messages: Vec::new(),
        recount: None,
        overflows: None,
        peak_memory_bytes: None,
        notes: Vec::new(),
    }
}

fn texts(page: &Html, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    page.select(&selector).map(|element| element.text().collect::<String>()).collect()
}

/// The table is in the report as it is in the result, and so are the sentences above it.
#[test]
fn the_report_says_who_can_rebuild_what() {
    let row = |who: &str, can: &str| ExposureRow {
        label: None,
        who: who.to_owned(),
        samples: can.to_owned(),
        models: can.to_owned(),
        sentence: format!("{who} {can} everything."),
    };
    let exposure = ExposureResult {
        sentences: vec!["Clients who decrypt can rebuild.".to_owned()],
        rows: vec![row("silo-0", "can rebuild"), row("the auxiliary", "nothing")],
    };
    let security = SecurityResult {
        trust: "Two servers.".to_owned(),
        disclosures: Vec::new(),
        exposure,
        statistical_bits_per_reply: None,
        replies: 0,
        statistical_claim: false,
        ranges: Vec::new(),
        approximate: None,
    };
    let result = EvaluationResult { security: Some(security), ..result(5, 1, 30, false) };
    let page = Html::parse_document(&render(&result, "five hospitals"));
    let rows = texts(&page, "section#exposure tbody tr");
    assert_eq!(rows[0], "silo-0can rebuildcan rebuildsilo-0 can rebuild everything.");
    assert_eq!(rows[1], "the auxiliarynothingnothingthe auxiliary nothing everything.");
    assert_eq!(texts(&page, "section#exposure p strong"), ["Clients who decrypt can rebuild."]);
    assert!(texts(&page, "section#summary")[0].contains("Clients who decrypt can rebuild."));
}

#[test]
fn everything_asked_for_is_there() {
    let page = Html::parse_document(&render(&result(5, 3, 30, false), "five hospitals"));
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    assert_eq!(texts(&page, "h1"), ["five hospitals"]);
    let sections = [
        "summary",
        "contributions",
        "certainty",
        "gain",
        "glossary",
        "rounds",
        "values",
        "skipped",
        "timing",
        "traffic",
        "operations",
        "parameters",
        "coalitions",
    ];
    for section in sections {
        assert_eq!(texts(&page, &format!("section#{section} h2")).len(), 1, "{section}");
    }
    let names = texts(&page, ".bars .name");
    assert_eq!(names, ["silo-3", "silo-2", "silo-1", "silo-0", "silo-4"], "largest first");
    assert_eq!(texts(&page, ".bars .number")[0], "+12.00");
    assert_eq!(texts(&page, ".bars .number")[4], "\u{2212}3.00");
    assert_eq!(texts(&page, ".bars rect.minus").len(), 1);
    assert_eq!(texts(&page, ".small-multiples figure").len(), 5);
    let cells = texts(&page, "#parameters td").join(" ");
    assert!(cells.contains("4711") && cells.contains("8192") && cells.contains("128 bits"), "{cells}");
    assert!(texts(&page, "#traffic td").contains(&"1.2\u{a0}MB".to_owned()));
    assert!(texts(&page, "#timing td").contains(&"12.5\u{a0}s".to_owned()));
    assert_eq!(texts(&page, "#skipped tbody tr").len(), 3);
    assert_eq!(texts(&page, "#coalitions tbody tr").len(), 32 + 16 + 32, "nothing was cut");
    assert!(texts(&page, ".cut").is_empty());
}

#[test]
fn a_client_absent_from_a_round_leaves_a_gap() {
    let page = Html::parse_document(&render(&result(5, 3, 30, false), "x"));
    assert_eq!(texts(&page, "#values tbody tr:nth-child(3) td"), ["+6.00", "+2.00", "\u{2013}", "+2.00"]);
    assert!(texts(&page, ".small-multiples li:nth-child(3) desc")[0].contains("round 2: absent"));
    let path = Selector::parse(".small-multiples li:nth-child(3) path.line").unwrap();
    let drawn = page.select(&path).next().and_then(|line| line.attr("d")).unwrap();
    assert_eq!(drawn.matches('M').count(), 2, "the pen is lifted over the gap: {drawn}");
}

#[test]
fn sampled_values_show_their_error() {
    let page = Html::parse_document(&render(&result(5, 3, 30, true), "x"));
    assert_eq!(texts(&page, ".bars path.error").len(), 5);
    assert_eq!(texts(&page, ".bars .number small")[0], "\u{b1}0.80");
    assert!(texts(&page, "#summary").concat().contains("standard error"));
    assert!(texts(&page, "#summary").concat().contains("All 78\u{a0}such models were tested"));
    let few = Html::parse_document(&render(&result(5, 3, 10, true), "x"));
    assert!(
        texts(&few, "#summary").concat().contains("Not every combination was tried: 34\u{a0}such models")
    );
    let exact = Html::parse_document(&render(&result(5, 3, 30, false), "x"));
    assert!(texts(&exact, ".bars path.error").is_empty() && texts(&exact, ".bars small").is_empty());
}

/// Where totals alone are known, the report says what cannot be said of them, and claims no sign that totals do not prove.
#[test]
fn what_totals_do_not_tell_is_said() {
    let totals = EvaluationResult { skip: false, ..result(4, 1, 30, false) };
    let page = Html::parse_document(&render(&totals, "x"));
    let said = texts(&page, "#certainty").concat();
    assert!(
        said.starts_with("How sure the numbers are") && said.contains("cannot be said from totals."),
        "{said}"
    );
    assert!(said.contains("would move by at most") && said.contains("upper bound alone"), "{said}");
    assert!(said.contains("totals prove the sign of none") && !said.contains("Within noise"), "{said}");
    let large = EvaluationResult { fsv: (0..4).map(|client| (id(client), 0.2)).collect(), ..totals };
    let said = texts(&Html::parse_document(&render(&large, "x")), "#certainty").concat();
    assert!(
        said.contains("Larger than this bound") && said.contains("silo-0, silo-1, silo-2, silo-3"),
        "{said}"
    );
}

#[test]
fn a_single_round_in_the_clear_needs_less() {
    let mut plain = result(4, 1, 20, false);
    plain.protocol = "nssv".to_owned();
    (plain.skip, plain.parameters, plain.operations) = (false, None, Operations::default());
    plain.traffic.clear();
    let page = Html::parse_document(&render(&plain, "x"));
    assert!(texts(&page, "#rounds").is_empty() && texts(&page, "#operations").is_empty());
    assert!(texts(&page, "#traffic").concat().contains("None"));
    assert!(texts(&page, "#skipped").concat().contains("None"));
    assert!(
        texts(&page, "#summary").concat().contains("in the clear"),
        "the reader is told who could see the data"
    );
}

#[test]
fn the_sentences_state_the_result() {
    let mut fair = result(5, 1, 30, false);
    // 300 right before, 310 after: one point, split among five.
    fair.fsv = (0..5).map(|client| (id(client), 0.002)).collect();
    let page = Html::parse_document(&render(&fair, "x"));
    let summary = texts(&page, "#summary").concat();
    assert!(summary.contains("30.00\u{a0}% to 31.00\u{a0}%: +1.00 points"), "{summary}");
    assert!(summary.contains("add up to exactly that") && !summary.contains("negative"), "{summary}");
    let harmful = Html::parse_document(&render(&result(5, 1, 30, false), "x"));
    let summary = texts(&harmful, "#summary").concat();
    assert!(summary.contains("than without: silo-4.") && !summary.contains("add up to exactly"), "{summary}");
}

#[test]
fn text_from_outside_is_escaped() {
    const ATTACK: &str = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;";
    let mut hostile = result(4, 2, 10, false);
    hostile.protocol = ATTACK.to_owned();
    hostile.estimator = ATTACK.to_owned();
    hostile.traffic[0].from = ATTACK.to_owned();
    if let Some(parameters) = &mut hostile.parameters {
        parameters.preset = ATTACK.to_owned();
    }
    let page = Html::parse_document(&render(&hostile, ATTACK));
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    assert!(texts(&page, "script").is_empty() && texts(&page, "img").is_empty());
    assert_eq!(texts(&page, "h1"), [ATTACK]);
    assert!(texts(&page, "#traffic td").contains(&ATTACK.to_owned()));
}

#[test]
fn the_file_needs_nothing_else() {
    let text = render(&result(6, 4, 60, true), "x");
    for outside in
        ["http:", "https:", "//", "@import", "url(", "src=", "href=", "<script", "<link", "<iframe"]
    {
        assert!(!text.contains(outside), "{outside}");
    }
    let page = Html::parse_document(&text);
    let (drawing, title) = (Selector::parse("svg").unwrap(), Selector::parse("title").unwrap());
    for drawing in page.select(&drawing) {
        assert_eq!((drawing.attr("role"), drawing.select(&title).count()), (Some("img"), 1));
    }
    // Tables that are folded on a screen are there on paper.
    assert!(text.contains("details::details-content { display: block; content-visibility: visible"));
    for table in page.select(&Selector::parse("table").unwrap()) {
        let heads: Vec<_> = table.select(&Selector::parse("th").unwrap()).collect();
        assert!(!heads.is_empty() && heads.iter().all(|head| head.attr("scope").is_some()));
    }
}

#[test]
fn a_large_federation_makes_a_small_file() {
    let large = result(20, 2, 1 << 15, false);
    let text = render(&large, "x");
    assert!(text.len() < 300_000, "{} bytes", text.len());
    let page = Html::parse_document(&text);
    let rows = texts(&page, "#coalitions tbody tr");
    assert_eq!(rows.len(), 400);
    let cut = &texts(&page, "#coalitions .cut")[0];
    assert!(cut.contains("400 of 65\u{202f}540"), "{cut}");
    for round in ["1", "2"] {
        let of_round = rows.iter().filter(|row| row.starts_with(round)).count();
        assert_eq!(of_round, 200, "rounds share the room");
    }
    assert!(rows[0].contains("nobody") && rows[1].contains("everybody (20)"), "{:?}", &rows[..2]);
}

/// Numbers out of range: a warning comes before everything else, and the result is not called done.
#[test]
fn a_result_in_doubt_says_so_first() {
    let model = OverflowedModel { round: RoundId(2), coalition: ids(Coalition::first(2)), numbers: 7 };
    let in_doubt = OverflowResult { numbers: 7, models: vec![model] };
    let doubtful = EvaluationResult { overflows: Some(in_doubt), ..result(3, 2, 4, false) };
    let text = value_table::text(&doubtful);
    assert!(text.starts_with("WARNING: 7 hidden numbers of 1 tested model left"), "{text}");
    assert!(text.contains("round 2") && text.contains("--ranges proven"), "{text}");
    let page = Html::parse_document(&render(&doubtful, "three hospitals"));
    assert!(texts(&page, "p.warning")[0].starts_with("Do not rely on these values"));
    assert!(check_ranges(&doubtful).is_err());
    let checked = EvaluationResult { overflows: Some(OverflowResult::default()), ..result(3, 2, 4, false) };
    assert!(check_ranges(&checked).is_ok() && !value_table::text(&checked).contains("WARNING"));
}

/// What is approximate is said with how well, in words and in the report.
#[test]
fn an_approximate_model_is_called_so() {
    let approximate =
        ApproximateResult { functions: vec!["tanh".to_owned()], labels: 400, equal: 399, percent: 99.75 };
    let security = SecurityResult {
        trust: String::new(),
        disclosures: Vec::new(),
        exposure: ExposureResult::default(),
        statistical_bits_per_reply: None,
        replies: 0,
        statistical_claim: false,
        ranges: Vec::new(),
        approximate: Some(approximate),
    };
    let found = EvaluationResult { security: Some(security), ..result(3, 2, 4, false) };
    let said = "approximate: tanh by straight pieces; the exact model gives the same label 399 times in 400 (99.75 %)";
    assert!(value_table::text(&found).contains(said));
    let page = Html::parse_document(&render(&found, "three hospitals"));
    assert!(texts(&page, "section#summary")[0].contains(said));
}
