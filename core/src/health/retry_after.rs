//! How long a target asks to be left alone: the header `retry-after`.

use crate::time::Millis;

/// The pause in milliseconds that the value of a `retry-after` asks for: seconds, or a date as HTTP
/// writes it. Nothing where it is neither.
pub fn retry_after(value: &[u8], now: Millis) -> Option<u64> {
    let text = str::from_utf8(value).ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(seconds.saturating_mul(1_000));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let since_epoch = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    let at = Millis(u64::try_from(since_epoch.as_millis()).ok()?);
    Some(at.since(now))
}
