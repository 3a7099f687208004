//! The figures "Skipped samples" and "Effect of L": how much SampleSkip skips, and how much of it wrongly.

use secsv_shapley::Method;
use secsv_training::ModelKind;

use super::{
    chart::{Chart, Series},
    fit::LineFit,
    measurement::{Measured, Measurement},
    paper,
    runs::TrainedCell,
    study::{CLIENTS, Section, Study, StudyScope, mean},
    table::{Cell, ResultTable, figure},
    tasks::PaperTask,
};
use crate::protocol_name::ProtocolName;

/// The layers of the paper's figure.
const LAYERS: std::ops::RangeInclusive<usize> = 1..=10;

/// Skipping in the clear, every skipped sample tested after all.
fn verified(trained: TrainedCell) -> Measurement {
    Measurement { skip: true, ..Measurement::new(trained, ProtocolName::Nssv) }
}

/// Of the predictions of aggregated models, the share skipped and the share wrongly skipped.
fn shares(found: &Measured) -> [f64; 2] {
    let (mut all, mut skipped, mut wrong) = (0, 0, 0);
    for utility in found.result.utilities.iter().filter(|utility| utility.coalition.len() > 1) {
        all += utility.total;
        skipped += utility.total - utility.tested;
        wrong += utility.wrongly_skipped.unwrap_or_default();
    }
    [skipped, wrong].map(|count| count as f64 / all.max(1) as f64)
}

/// Measurements of "Skipped samples".
pub fn skip_measurements(scope: &StudyScope) -> Vec<Measurement> {
    let of_task = |&task: &PaperTask| {
        (0..scope.runs).map(move |repetition| verified(scope.federation(task, repetition)))
    };
    scope.tasks.iter().flat_map(of_task).collect()
}

/// The section "Skipped samples".
pub fn skip_section(study: &Study) -> Section {
    let mut section = Section::new("fig-skipped", "Skipped samples (figure \"Skipped samples\")");
    section.about = vec![
        "Shares of the predictions of aggregated models (two members or more), all rounds; skipped samples were tested after all to find the wrong ones. In the clear: secure runs skip by the same rule. The paper prints no numbers; beside ours is the authors' rule and training on the same data, counted in the clear.".to_owned(),
    ];
    let columns = ["Data set (model)", "M", "Skipped", "Wrongly skipped", "Left to test"];
    let mut table = ResultTable::new("fig-skipped", &columns);
    let mut points = [Vec::new(), Vec::new()];
    for (place, &task) in study.scope.tasks.iter().enumerate() {
        let row = match study.repeated(|repetition| verified(study.scope.federation(task, repetition))) {
            Ok(found) => {
                let ours = [0, 1].map(|which| mean(&found, |m| shares(m)[which]));
                let theirs = paper::skipped(task);
                (0..2).for_each(|which| points[which].push((place as f64 + 1.0, 100.0 * ours[which])));
                section.lines.extend(judge(task, ours[1]));
                let compared = |which: usize| Cell::beside(ours[which], theirs.map(|shares| shares[which]));
                vec![
                    Cell::text(task.title()),
                    Cell::count(mean(&found, Measured::samples)),
                    compared(0),
                    compared(1),
                    Cell::Number(1.0 - ours[0]),
                ]
            }
            Err(reason) => vec![Cell::text(task.title()), Cell::text(""), Cell::gap(reason)],
        };
        table.push(row);
    }
    section.tables.push(table);
    let [skipped, wrong] = points;
    let series = |name: &str, points| Series { name: name.to_owned(), points, fit: None };
    let chart = Chart {
        categories: study.scope.tasks.iter().map(|task| task.name().to_owned()).collect(),
        ..Chart::linear(
            "Skipped samples, %",
            "task",
            "% of predictions of aggregated models",
            vec![series("skipped", skipped), series("wrongly skipped", wrong)],
        )
    };
    section.charts.push(("fig-skipped", chart));
    section.note_differences(&study.scope.tasks);
    section
}

fn judge(task: PaperTask, wrong: f64) -> Option<String> {
    (task.is_linear() && wrong > 0.0).then(|| {
        format!(
            "Worse: {}: {} wrongly skipped, where the paper's theorem says none.",
            task.title(),
            figure(wrong)
        )
    })
}

/// A DNN of L linear layers; one layer is a logistic model.
fn deep(scope: &StudyScope, task: PaperTask, layers: usize) -> TrainedCell {
    let model = if layers == 1 { ModelKind::Logistic } else { ModelKind::Dnn { layers } };
    scope.with(task, model, CLIENTS, 0)
}

/// Its secure test on a tenth of the samples.
fn deep_secure(scope: &StudyScope, task: PaperTask, layers: usize) -> Measurement {
    let trained = deep(scope, task, layers);
    let (share, limit) = (scope.tenth(), Some(scope.sweep_limit(trained.model)));
    let plain = Measurement::new(trained, ProtocolName::SECSV);
    Measurement { share, limit, method: Method::Exact, ..plain }
}

/// Measurements of "Effect of L".
pub fn layer_measurements(scope: &StudyScope) -> Vec<Measurement> {
    let of_task = |&task: &PaperTask| {
        LAYERS.flat_map(move |layers| [verified(deep(scope, task, layers)), deep_secure(scope, task, layers)])
    };
    scope.tasks.iter().flat_map(of_task).collect()
}

/// The section "Effect of L".
pub fn layer_section(study: &Study) -> Section {
    let mut section = Section::new("fig-layers", "Number of layers (figure \"Effect of L\")");
    let limit = |model| study.scope.sweep_limit(model);
    section.about = vec![format!(
        "DNNs of L linear layers, 100 wide, relu between them; L = 1 is a logistic model. Skipped and wrongly skipped shares in the clear on all samples; SecSV without skipping on a tenth of the test samples; cells that were planned to exceed the limit ({} s, L = 1 {} s) use fewer rounds, then fewer samples. The paper prints no numbers.",
        figure(limit(ModelKind::Cnn)),
        figure(limit(ModelKind::Logistic))
    )];
    let columns =
        ["Data set", "L", "Skipped", "Wrongly skipped", "SecSV: M", "T", "Wall ms per sample and round"];
    let mut table = ResultTable::new("fig-layers", &columns);
    let (mut wrong, mut cost) = (Vec::new(), Vec::new());
    for &task in &study.scope.tasks {
        let (mut wrong_points, mut cost_points) = (Vec::new(), Vec::new());
        for layers in LAYERS {
            let found = study.get(&verified(deep(&study.scope, task, layers))).map(|found| shares(&found));
            let secure = study.get(&deep_secure(&study.scope, task, layers));
            if let Ok(shares) = &found {
                wrong_points.push((layers as f64, 100.0 * shares[1]));
            }
            let cost_of = |found: &Measured| 1e3 * found.seconds_per_sample();
            cost_points.extend(secure.iter().map(|found| (layers as f64, cost_of(found))));
            let cell = |which: usize| match &found {
                Ok(shares) => Cell::Number(shares[which]),
                Err(reason) => Cell::gap(reason.clone()),
            };
            let mut row = vec![Cell::text(task.name()), Cell::count(layers as f64), cell(0), cell(1)];
            match &secure {
                Ok(found) => {
                    row.extend([found.samples(), found.rounds()].map(Cell::count));
                    row.push(Cell::Number(cost_of(found)));
                }
                Err(reason) => row.extend([Cell::text(""), Cell::text(""), Cell::gap(reason.clone())]),
            }
            table.rows.push(row);
        }
        let fit = LineFit::through(&cost_points);
        if let Some(fit) = &fit {
            let words = fit.words("layer").replace(" s ", " ms ");
            section.lines.push(format!("{}: wall time per sample and round = {words}.", task.name()));
        }
        wrong.push(Series { name: task.name().to_owned(), points: wrong_points, fit: None });
        cost.push(Series { name: task.name().to_owned(), points: cost_points, fit });
    }
    section.tables.push(table);
    section.charts.push(("fig-layers", Chart::linear("Wrongly skipped samples, %", "L", "%", wrong)));
    section.charts.push((
        "fig-layers-time",
        Chart::linear("SecSV, wall ms per test sample and round", "L", "ms", cost),
    ));
    section.note_differences(&study.scope.tasks);
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_predictions_of_aggregated_models_count() {
        let text = r#"{"planned_s":null,"result":{"protocol":"nssv","estimator":"exact","skip":true,
            "clients":["a","b"],"fsv":{},"ssv":[],"utilities":[
            {"round":1,"coalition":[],"correct":5,"total":10,"tested":10},
            {"round":1,"coalition":["a"],"correct":5,"total":10,"tested":10},
            {"round":1,"coalition":["a","b"],"correct":9,"total":10,"tested":4,"wrongly_skipped":1}],
            "timing":{"wall_s":1.0,"encrypt_s":0,"share_s":0,"linear_s":0,"decrypt_s":0,"activate_s":0},
            "traffic":[],"operations":{"ct_pt_mul":0,"ct_ct_mul":0,"rotate":0,"ntt":0,"encrypt":0,"decrypt":0},
            "parameters":null,"seed":0}}"#;
        let found: Measured = serde_json::from_str(text).unwrap();
        assert_eq!(shares(&found), [0.6, 0.1]);
    }
}
