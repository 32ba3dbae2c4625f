//! Plain scalars as YAML 1.1 and PyYAML resolve them.

use gatelog_record::Value;

/// What an unquoted scalar means: `yes` is a truth value, `0644` is octal, `9.10` is the number
/// 9.1, `1:30` is 90. Dates stay text.
pub fn resolve_plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Value::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Value::Bool(false),
        _ => {}
    }
    match text.as_bytes().first() {
        Some(b'-' | b'+' | b'.' | b'0'..=b'9') => {}
        _ => return Value::Str(text.to_owned()),
    }
    integer(text).or_else(|| float(text)).unwrap_or_else(|| Value::Str(text.to_owned()))
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or("")),
        Some(b'+') => (false, text.get(1..).unwrap_or("")),
        _ => (false, text),
    }
}

fn all(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|byte| allowed(byte) || byte == b'_')
}

/// Whole numbers: binary, octal, decimal, hexadecimal, base 60.
pub fn integer(text: &str) -> Option<Value> {
    let (negative, body) = split_sign(text);
    let digits: String = body.chars().filter(|c| *c != '_').collect();
    let radix = |digits: &str, radix: u32| whole(negative, digits, radix);
    if body == "0" {
        return Some(Value::Int(0));
    }
    if let Some(rest) = body.strip_prefix("0b") {
        return all(rest, |b| matches!(b, b'0' | b'1')).then(|| radix(digits.get(2..).unwrap_or(""), 2)).flatten();
    }
    if let Some(rest) = body.strip_prefix("0x") {
        return all(rest, |b| b.is_ascii_hexdigit()).then(|| radix(digits.get(2..).unwrap_or(""), 16)).flatten();
    }
    if let Some(rest) = body.strip_prefix('0') {
        return all(rest, |b| matches!(b, b'0'..=b'7')).then(|| radix(&digits, 8)).flatten();
    }
    if !matches!(body.as_bytes().first(), Some(b'1'..=b'9')) {
        return None;
    }
    if all(body, |b| b.is_ascii_digit()) {
        return radix(&digits, 10);
    }
    let mut parts = body.split(':');
    let first = parts.next().filter(|part| all(part, |b| b.is_ascii_digit()))?;
    let mut sum: i64 = first.replace('_', "").parse().ok()?;
    for part in parts {
        sum = sum.checked_mul(60)?.checked_add(sixtieth(part)?)?;
    }
    Some(Value::Int(if negative { -sum } else { sum }))
}

/// One base-60 digit: `[0-5]?[0-9]`.
fn sixtieth(part: &str) -> Option<i64> {
    match part.as_bytes() {
        [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'] => part.parse().ok(),
        _ => None,
    }
}

fn whole(negative: bool, digits: &str, radix: u32) -> Option<Value> {
    if digits.is_empty() {
        // `0x_` and the like: PyYAML fails on it; text is the kinder reading.
        return None;
    }
    match i128::from_str_radix(digits, radix) {
        Ok(number) => {
            let number = if negative { -number } else { number };
            Some(i64::try_from(number).map_or_else(|_| Value::Number(number.to_string()), Value::Int))
        }
        Err(_) if radix == 10 => Some(Value::Number(format!("{}{digits}", if negative { "-" } else { "" }))),
        Err(_) => None,
    }
}

/// Numbers with a point: decimal, base 60, infinity, not-a-number.
pub fn float(text: &str) -> Option<Value> {
    let (negative, body) = split_sign(text);
    match body {
        ".inf" | ".Inf" | ".INF" => {
            return Some(Value::Number(if negative { "-Infinity" } else { "Infinity" }.to_owned()));
        }
        ".nan" | ".NaN" | ".NAN" if body.len() == text.len() => return Some(Value::Number("NaN".to_owned())),
        _ => {}
    }
    if body.contains(':') {
        let (head, fraction) = body.split_once('.')?;
        let mut parts = head.split(':');
        let first = parts.next().filter(|part| part.starts_with(|c: char| c.is_ascii_digit()))?;
        let mut sum: i64 = first.replace('_', "").parse().ok()?;
        for part in parts {
            sum = sum.checked_mul(60)?.checked_add(sixtieth(part)?)?;
        }
        if !fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
            return None;
        }
        return number(&format!("{}{sum}.{}", if negative { "-" } else { "" }, fraction.replace('_', "")));
    }
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (body.get(..at)?, Some(body.get(at + 1..)?)),
        None => (body, None),
    };
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['-', '+'])?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
    }
    let (whole, fraction) = mantissa.split_once('.')?;
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let shaped = if whole.is_empty() {
        body.len() == text.len() && fraction.starts_with(|c: char| c.is_ascii_digit()) && digits(fraction)
    } else {
        whole.starts_with(|c: char| c.is_ascii_digit()) && digits(whole) && digits(fraction)
    };
    if shaped { number(&text.replace('_', "")) } else { None }
}

#[expect(clippy::disallowed_types, reason = "a passing value: what stays is its shortest text")]
fn number(text: &str) -> Option<Value> {
    text.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| Value::Number(format!("{number:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_resolve_as_in_pyyaml() {
        let cases = [
            ("yes", Value::Bool(true)),
            ("Off", Value::Bool(false)),
            ("y", "y".into()),
            ("~", Value::Null),
            ("", Value::Null),
            ("0644", Value::Int(420)),
            ("0x1F", Value::Int(31)),
            ("0b101", Value::Int(5)),
            ("0o17", "0o17".into()),
            ("089", "089".into()),
            ("1_000", Value::Int(1000)),
            ("-12", Value::Int(-12)),
            ("1:30", Value::Int(90)),
            ("22:22:22", Value::Int(80542)),
            ("1:99", "1:99".into()),
            ("9.10", Value::Number("9.1".into())),
            ("1.", Value::Number("1.0".into())),
            (".5", Value::Number("0.5".into())),
            ("1e3", "1e3".into()),
            ("1.5e3", "1.5e3".into()),
            ("1.5e+3", Value::Number("1500.0".into())),
            ("1:30.5", Value::Number("90.5".into())),
            (".inf", Value::Number("Infinity".into())),
            ("99999999999999999999", Value::Number("99999999999999999999".into())),
            ("1.2.3", "1.2.3".into()),
            ("2026-01-02", "2026-01-02".into()),
            ("-", "-".into()),
            ("+", "+".into()),
            ("<<", "<<".into()),
        ];
        for (text, expected) in cases {
            assert_eq!(resolve_plain(text), expected, "{text:?}");
        }
    }
}
