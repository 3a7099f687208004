//! Charts as SVG: lines of points, each with its linear fit where one is asked for, or bars by category.

use std::fmt::Write as _;

use maud::{Escaper, Markup, html};

use super::{fit::LineFit, table::figure};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
/// Pieces of a fitted line.
const PIECES: u32 = 40;
/// Told apart by people who see colours otherwise, too (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

/// A chart.
pub struct Chart {
    /// Its heading.
    pub title: String,
    /// The name of x.
    pub x: &'static str,
    /// The name of y.
    pub y: &'static str,
    /// Whether y is drawn by its logarithm.
    pub logarithmic: bool,
    /// Names for x = 1, 2 and so on: bars instead of lines. Empty for lines.
    pub categories: Vec<String>,
    /// The lines, or bars of one colour.
    pub series: Vec<Series>,
}

/// One line of a chart.
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Ascending in x.
    pub points: Vec<(f64, f64)>,
    /// Drawn dashed.
    pub fit: Option<LineFit>,
}

struct AxisScale {
    low: f64,
    high: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl AxisScale {
    fn at(&self, value: f64) -> f64 {
        let map = |v: f64| if self.logarithmic { v.max(f64::MIN_POSITIVE).log10() } else { v };
        let (low, high) = (map(self.low), map(self.high));
        let place = if high > low { (map(value) - low) / (high - low) } else { 0.5 };
        self.from + place.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (low, high) = (self.low.log10().round() as i32, self.high.log10().round() as i32);
            return (low..=high).map(|power| 10f64.powi(power)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.max(f64::MIN_POSITIVE).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|s| s * power).find(|s| *s >= rough).unwrap_or(rough);
        (0..12)
            .map(|i| i as f64 * step)
            .filter(|tick| (self.low..=self.high * 1.0001).contains(tick))
            .collect()
    }
}

impl Chart {
    /// Lines on linear axes.
    pub fn linear(title: &str, x: &'static str, y: &'static str, series: Vec<Series>) -> Self {
        Self { title: title.to_owned(), x, y, logarithmic: false, categories: Vec::new(), series }
    }

    /// The drawing, complete in itself.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let most = |value: fn(&(f64, f64)) -> f64| points().map(value).fold(0.0, f64::max);
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let count = self.categories.len() as f64;
        let (first, last) = if count > 0.0 { (0.5, count + 0.5) } else { (0.0, most(|p| p.0)) };
        let x = AxisScale { low: first, high: last, logarithmic: false, from: LEFT, to: right };
        let least = points().map(|p| p.1).filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
        let decade = |value: f64, up: bool| {
            let power = value.max(f64::MIN_POSITIVE).log10();
            10f64.powf(if up { power.ceil() } else { power.floor() })
        };
        let (low, high) = if self.logarithmic && least.is_finite() {
            (decade(least, false), decade(most(|p| p.1), true))
        } else {
            (0.0, most(|p| p.1) * 1.05)
        };
        let logarithmic = self.logarithmic && least.is_finite();
        let y = AxisScale { low, high, logarithmic, from: bottom, to: TOP };
        let drawing = html! {
            rect width=(WIDTH) height=(HEIGHT) fill="#ffffff" {}
            text x=(LEFT) y="20" font-weight="bold" { (self.title) }
            @for (at, label) in self.labels(&x) {
                text x=(place(x.at(at))) y=(bottom + 16.0) text-anchor="middle" { (label) }
            }
            @for tick in y.ticks() {
                path d={ "M" (LEFT) " " (place(y.at(tick))) "H" (right) } stroke="#dddddd" {}
                text x=(LEFT - 6.0) y=(place(y.at(tick) + 4.0)) text-anchor="end" { (short(tick)) }
            }
            path d={ "M" (LEFT) " " (TOP) "V" (bottom) "H" (right) } stroke="#333333" fill="none" {}
            text x=((LEFT + right) / 2.0) y=(HEIGHT - 10.0) text-anchor="middle" { (self.x) }
            text transform={ "translate(16 " ((TOP + bottom) / 2.0) ") rotate(-90)" } text-anchor="middle" { (self.y) }
            @for (number, series) in self.series.iter().enumerate() {
                @if self.categories.is_empty() { (line(series, number, &x, &y)) } @else { (self.bars(number, &x, &y)) }
                (legend(&series.name, number))
            }
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
            escaped(&self.title),
            drawing.into_string()
        )
    }

    fn labels(&self, x: &AxisScale) -> Vec<(f64, String)> {
        if self.categories.is_empty() {
            return x.ticks().into_iter().map(|tick| (tick, short(tick))).collect();
        }
        self.categories.iter().enumerate().map(|(place, name)| (place as f64 + 1.0, name.clone())).collect()
    }

    /// One series' bars, beside those of the others.
    fn bars(&self, number: usize, x: &AxisScale, y: &AxisScale) -> Markup {
        let width = 0.8 / self.series.len() as f64;
        let left = |at: f64| x.at(at - 0.4 + width * number as f64);
        html! {
            @for point in &self.series[number].points {
                rect x=(place(left(point.0))) y=(place(y.at(point.1))) width=(place(left(point.0 + width) - left(point.0)))
                    height=(place(y.from - y.at(point.1))) fill=(COLOURS[number % COLOURS.len()]) {}
                text x=(place((left(point.0) + left(point.0 + width)) / 2.0)) y=(place(y.at(point.1) - 4.0)) text-anchor="middle" {
                    (figure(point.1))
                }
            }
        }
    }
}

fn legend(name: &str, number: usize) -> Markup {
    let (at, colour) = (TOP + 10.0 + 18.0 * number as f64, COLOURS[number % COLOURS.len()]);
    html! {
        path d={ "M" (WIDTH - RIGHT + 12.0) " " (at) "h0" } stroke=(colour) stroke-width="9" stroke-linecap="round" {}
        text x=(WIDTH - RIGHT + 22.0) y=(at + 4.0) { (name) }
    }
}

/// A round number at an axis.
fn short(tick: f64) -> String {
    if tick.fract() == 0.0 && tick.abs() < 1e6 { format!("{tick:.0}") } else { figure(tick) }
}

fn line(series: &Series, number: usize, x: &AxisScale, y: &AxisScale) -> Markup {
    let colour = COLOURS[number % COLOURS.len()];
    let (mut path, mut dots) = (String::new(), String::new());
    for (place, point) in series.points.iter().enumerate() {
        let (px, py) = (x.at(point.0), y.at(point.1));
        let _ = write!(path, "{}{px:.1} {py:.1}", if place == 0 { 'M' } else { 'L' });
        let _ = write!(dots, "M{px:.1} {py:.1}h0");
    }
    // On a logarithmic scale a straight line bends, so it is drawn in many pieces.
    let dashed = series.fit.as_ref().map(|fit| {
        let piece = |piece: u32| {
            let at = x.low + (x.high - x.low) * f64::from(piece) / f64::from(PIECES);
            let pen = if piece == 0 { 'M' } else { 'L' };
            format!("{pen}{:.1} {:.1}", x.at(at), y.at(fit.at(at)))
        };
        (0..=PIECES).map(piece).collect::<String>()
    });
    html! {
        @match dashed {
            Some(dashed) => { path d=(dashed) stroke=(colour) stroke-dasharray="4 4" fill="none" {} }
            None => { path d=(path) stroke=(colour) stroke-width="1.5" fill="none" {} }
        }
        path d=(dots) stroke=(colour) stroke-width="7" stroke-linecap="round" {}
    }
}

fn place(value: f64) -> String {
    format!("{value:.1}")
}

fn escaped(text: &str) -> String {
    let mut safe = String::new();
    // Writing into a string cannot fail.
    let _ = Escaper::new(&mut safe).write_str(text);
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_is_one_svg_with_all_its_series() {
        let series = |name: &str, fit| Series {
            name: name.to_owned(),
            points: vec![(1000.0, 1.5), (2000.0, 3.0), (10_000.0, 15.0)],
            fit,
        };
        let fit = LineFit::through(&[(0.0, 0.0), (2.0, 3.0)]);
        let chart = Chart {
            title: "A < B".to_owned(),
            x: "samples",
            y: "seconds",
            logarithmic: false,
            categories: Vec::new(),
            series: vec![series("BANK", fit), series("<AGNEWS>", None)],
        };
        let svg = chart.svg();
        assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("A &lt; B") && svg.contains("&lt;AGNEWS&gt;") && !svg.contains("<AGNEWS>"));
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let logarithmic = Chart { logarithmic: true, ..chart }.svg();
        assert!(logarithmic.contains(">10<") && !logarithmic.contains("NaN"), "{logarithmic}");
    }

    #[test]
    fn categories_become_bars_with_their_names() {
        let series = |name: &str, values: [f64; 2]| Series {
            name: name.to_owned(),
            points: vec![(1.0, values[0]), (2.0, values[1])],
            fit: None,
        };
        let chart = Chart {
            title: "Skipped".to_owned(),
            x: "task",
            y: "%",
            logarithmic: false,
            categories: vec!["agnews".to_owned(), "bank".to_owned()],
            series: vec![series("skipped", [77.0, 79.0]), series("wrongly", [0.0, 0.0])],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<rect").count(), 1 + 4, "the ground and four bars: {svg}");
        assert!(svg.contains(">agnews<") && svg.contains(">bank<") && !svg.contains("NaN"), "{svg}");
        assert!(!svg.contains("height=\"-"), "{svg}");
    }
}
