//! Numbers as people read them.

/// A value in points: one point is one more right answer per hundred test cases. A real minus sign, and a
/// sign always.
pub fn points(value: f64) -> String {
    let points = 100.0 * value;
    let digits = if points.abs() < 0.995 { 3 } else { 2 };
    let text = format!("{:.digits$}", points.abs());
    if text.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return text;
    }
    format!("{}{text}", if points < 0.0 { '\u{2212}' } else { '+' })
}

/// The same with as many digits as the largest of several needs, so that they stand one below the other.
pub fn aligned_points(value: f64, largest: f64) -> String {
    let digits = if 100.0 * largest.abs() < 0.995 { 3 } else { 2 };
    let text = format!("{:.digits$}", 100.0 * value.abs());
    if text.bytes().all(|byte| matches!(byte, b'0' | b'.')) {
        return text;
    }
    format!("{}{text}", if value < 0.0 { '\u{2212}' } else { '+' })
}

/// The size of an uncertainty in points.
pub fn plus_minus(error: f64) -> String {
    format!("\u{b1}{:.2}", 100.0 * error)
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.2}\u{a0}%", 100.0 * share)
}

/// Thousands apart, as 1 048 576.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// "1 test", "2 tests".
pub fn counted(number: u64, one: &str) -> String {
    format!("{}\u{a0}{one}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Bytes in a unit that fits.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut size = number as f64;
    let mut unit = 0;
    while size >= 999.95 && unit + 1 < UNITS.len() {
        size /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{number}\u{a0}B") } else { format!("{size:.1}\u{a0}{}", UNITS[unit]) }
}

/// Seconds in a unit that fits.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 && s > 0.0 => format!("{:.0}\u{a0}\u{b5}s", s * 1e6),
        s if s < 1.0 => format!("{:.0}\u{a0}ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1}\u{a0}s"),
        s if s < 7200.0 => format!("{:.1}\u{a0}min", s / 60.0),
        s => format!("{:.1}\u{a0}h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_well() {
        assert_eq!(points(0.1234), "+12.34");
        assert_eq!(points(-0.0012), "\u{2212}0.120");
        assert_eq!((points(0.0).as_str(), points(-1e-9).as_str()), ("0.000", "0.000"));
        assert_eq!(
            (aligned_points(0.009_82, 0.0252).as_str(), aligned_points(-0.0, 1.0).as_str()),
            ("+0.98", "0.00")
        );
        assert_eq!(count(1_048_576), "1\u{202f}048\u{202f}576");
        assert_eq!(count(999), "999");
        assert_eq!((bytes(999).as_str(), bytes(1_234_567).as_str()), ("999\u{a0}B", "1.2\u{a0}MB"));
        assert_eq!(bytes(999_999), "1.0\u{a0}MB");
        assert_eq!((seconds(0.25).as_str(), seconds(90.0).as_str()), ("250\u{a0}ms", "90.0\u{a0}s"));
        assert_eq!(
            (counted(1, "test").as_str(), counted(2, "test").as_str()),
            ("1\u{a0}test", "2\u{a0}tests")
        );
    }
}
