//! What personal data of each kind looks like: a pattern for what may be some, then what a pattern
//! cannot tell, such as check digits.
//!
//! Invariant: the patterns of numbers find a bounded number of bytes, and what is refused is passed
//! over by one at least. So the work is linear in the text.

use crate::config::PiiKind;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Letters of the scripts that put spaces between words. In others an address ends where they begin.
macro_rules! letters {
    () => {
        r"A-Za-z\u{C0}-\u{24F}\u{370}-\u{52F}\u{1E00}-\u{1FFF}"
    };
}

/// What may be of a kind.
pub(super) fn pattern(kind: PiiKind) -> &'static str {
    match kind {
        // In addresses of the web the `@` is an escape.
        PiiKind::Email => concat!(
            "[0-9_.%+'",
            letters!(),
            "-]+(?:@|%40)[0-9",
            letters!(),
            r"-]+(?:\.[0-9",
            letters!(),
            "-]+)+",
        ),
        // With the code of a country; as in North America; with the zero of many other countries.
        PiiKind::Phone => concat!(
            r"(?:\+|\b00)[1-9](?:[ ./()-]{0,3}[0-9]){7,14}\b",
            r"|(?:\b1[ .-])?(?:\([2-9][0-9]{2}\)[ -]?|\b[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4}\b",
            r"|\(?\b0[1-9](?:[ ./()-]{0,2}[0-9]){6,11}\b",
        ),
        PiiKind::Card => r"\b[2-6](?:[ -]?[0-9]){12,18}\b",
        PiiKind::Iban => r"\b[A-Z]{2}[ -]?[0-9]{2}(?:[ -]?[0-9A-Z]){11,30}",
        PiiKind::Ssn => r"\b[0-8][0-9]{2}(?:-[0-9]{2}-| [0-9]{2} )[0-9]{4}\b",
        PiiKind::Ip => concat!(
            r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b",
            r"|(?:\b[0-9A-Fa-f]{1,4}|:)(?::[0-9A-Fa-f]{0,4}){1,8}(?:\.[0-9]{1,3}){0,3}",
        ),
    }
}

/// What of a finding is of the kind, or from where on to look for the next.
///
/// A pattern takes in what follows if that goes on in its way, so a part from its beginning may be
/// the value. Where it cannot be told where the value ends, more is taken out rather than nothing.
pub(super) fn examine(
    kind: PiiKind,
    text: &str,
    span: Range<usize>,
) -> Result<Range<usize>, usize> {
    let found = Candidate {
        text: text.get(span.clone()).unwrap_or_default(),
        before: text.get(..span.start).unwrap_or_default(),
        after: text.get(span.start..).unwrap_or_default(),
    };
    let end = match kind {
        PiiKind::Email => {
            let (at, domain) = at_sign(found.text);
            return match email(found.text, at, domain) {
                Some(sub) => Ok(span.start + sub.start..span.start + sub.end),
                None => Err(span.start + domain),
            };
        }
        PiiKind::Phone => phone(&found),
        PiiKind::Card => found
            .groups()
            .find(|&end| card(found.text, end) && !is_fraction(&found)),
        PiiKind::Iban => iban(&found),
        PiiKind::Ssn => {
            (ssn(found.text) && !found.follows("-") && !found.goes_on(found.end(), "-"))
                .then_some(found.end())
        }
        PiiKind::Ip if found.text.contains(':') => ipv6(&found),
        PiiKind::Ip => ipv4(&found),
    };
    // Numbers begin with a byte.
    end.map(|end| span.start..span.start + end)
        .ok_or(span.start + 1)
}

/// A number that a pattern has found, and what is around it.
struct Candidate<'t> {
    text: &'t str,
    before: &'t str,
    /// From its beginning on.
    after: &'t str,
}

impl Candidate<'_> {
    fn end(&self) -> usize {
        self.text.len()
    }

    /// Where a group of digits or letters ends in it, the longest part first.
    fn groups(&self) -> impl Iterator<Item = usize> {
        let is_sign = |sign: u8| !sign.is_ascii_alphanumeric();
        let bytes = self.text.as_bytes();
        let ends = bytes.windows(2).enumerate().rev();
        let inner = ends.filter_map(move |(at, pair)| match *pair {
            [last, next] if !is_sign(last) && is_sign(next) => Some(at + 1),
            _ => None,
        });
        std::iter::once(self.end()).chain(inner)
    }

    /// Whether it is the rest of a longer number, by one of these signs and a digit before that.
    fn follows(&self, signs: &str) -> bool {
        let mut before = self.before.chars().rev();
        before.next().is_some_and(|sign| signs.contains(sign))
            && before.next().is_some_and(|sign| sign.is_ascii_digit())
    }

    /// Whether so much of it is the beginning of a longer number, likewise.
    fn goes_on(&self, end: usize, signs: &str) -> bool {
        let mut after = self.after.get(end..).unwrap_or_default().chars();
        after.next().is_some_and(|sign| signs.contains(sign))
            && after.next().is_some_and(|sign| sign.is_ascii_digit())
    }
}

/// Where the sign is that parts an address, and where its domain begins.
fn at_sign(found: &str) -> (usize, usize) {
    match (found.find('@'), found.rfind("%40")) {
        (Some(at), _) => (at, at + 1),
        (None, Some(at)) => (at, at + 3),
        (None, None) => (0, 1),
    }
}

/// What of it is an address. Its domain ends with a name of letters.
fn email(found: &str, at: usize, domain: usize) -> Option<Range<usize>> {
    const MAX_BYTES: usize = 254;
    let start = local(found.get(..at)?)?;
    let first = found.get(domain..)?.split('.').next()?;
    let is_number = first.bytes().all(|byte| byte.is_ascii_digit());
    let mut end = found.len();
    loop {
        let labels = found.get(domain..end)?.trim_end_matches('-');
        let (rest, last) = labels.rsplit_once('.')?;
        let label = domain + rest.len() + 1;
        end = label + last.len();
        if !last.starts_with("xn--") {
            // What a hyphen or a number ties to it is no part of its name, but in versions.
            let is_version = is_number && first.len() < rest.len();
            match last.find(|sign: char| !sign.is_alphabetic()) {
                Some(_) if is_version => end = label,
                Some(letters) => end = label + letters,
                None => {}
            }
        }
        let is_name = found.get(label..end)?.chars().nth(1).is_some();
        // What is escaped may be a list of them.
        let fits = || {
            let local = found.get(start..at).unwrap_or_default();
            end - start <= MAX_BYTES || local.contains("%40")
        };
        if is_name && !rest.starts_with('-') && fits() {
            return Some(start..end);
        }
        end = domain + rest.len();
    }
}

/// Where it begins before the `@`. What is too long is led up to by something else, such as dots.
fn local(found: &str) -> Option<usize> {
    const MAX_BYTES: usize = 64;
    let is_first = |sign: char| sign.is_alphanumeric() || sign == '_';
    let start = found.find(is_first)?;
    if found.len() - start <= MAX_BYTES || found.contains("%40") {
        return Some(start);
    }
    let start = found.ceil_char_boundary(found.len() - MAX_BYTES);
    let last = found.get(start..)?;
    let led = last.rfind("..").map_or(0, |dots| dots + 2);
    let first = last.get(led..)?.find(is_first)?;
    Some(start + led + first)
}

fn phone(found: &Candidate<'_>) -> Option<usize> {
    let is_international = found.text.starts_with('+');
    let is_national = found.text.trim_start_matches('(').starts_with('0');
    if !is_international && !is_national {
        // As in North America. What has no dots itself does not go on with one.
        let is_dotted = found.text.contains('.');
        let signs = if is_dotted { "-." } else { "-" };
        let is_part = found.follows(signs) || found.goes_on(found.end(), signs);
        return (!is_part).then_some(found.end());
    }
    if is_national && (found.follows("-.") || is_rest_of_date(found)) {
        return None;
    }
    let whole = found.end();
    let is_phone = |end: usize| {
        let part = found.text.get(..end);
        part.is_some_and(|part| is_phone(found.before, part))
    };
    found
        .groups()
        .find(|&end| is_phone(end) && !found.goes_on(end, "-."))
        .or_else(|| {
            // It goes on in another way than it is written itself.
            let own = ["-", "."]
                .into_iter()
                .filter(|&sign| found.text.contains(sign));
            let goes_on = || own.clone().any(|sign| found.goes_on(whole, sign));
            (is_phone(whole) && (is_international || !goes_on())).then_some(whole)
        })
}

/// Whether at most a year and a slash are before it.
fn is_rest_of_date(found: &Candidate<'_>) -> bool {
    let Some(before) = found.before.strip_suffix('/') else {
        return false;
    };
    let digits = before.bytes().rev().take(5).take_while(u8::is_ascii_digit);
    (1..=4).contains(&digits.count())
}

/// Whether a number with a country's code or a leading zero is for the phone.
fn is_phone(before: &str, found: &str) -> bool {
    let groups = || {
        let groups = found.split(|sign: char| !sign.is_ascii_digit());
        groups.filter(|group| !group.is_empty())
    };
    let digits: usize = groups().map(str::len).sum();
    let is_one = groups().nth(1).is_none();
    if found.starts_with('+') {
        // What has a single dot is a fraction.
        let is_fraction = found.matches('.').count() == 1
            && found
                .trim_start_matches('+')
                .matches(|sign: char| !sign.is_ascii_digit())
                .count()
                == 1;
        let is_part = before
            .chars()
            .next_back()
            .is_some_and(char::is_alphanumeric);
        return digits >= 8 && !is_fraction && !is_part;
    }
    if found.starts_with("00") {
        return digits >= 10 && !is_one;
    }
    let lengths = [0, 1, 2].map(|group| groups().nth(group).map_or(0, str::len));
    let has_other = found.contains(|sign: char| !sign.is_ascii_digit() && sign != '.');
    digits >= 8 && !is_one && lengths != [2, 2, 4] && !(has_other && found.contains('.'))
}

/// Whether a dot and a long group are no part of a card's number.
fn is_fraction(found: &Candidate<'_>) -> bool {
    let first = found.text.bytes().take_while(u8::is_ascii_digit).count();
    first > 4 && found.follows(".")
}

/// Luhn's check digit, of this many first bytes.
fn card(found: &str, end: usize) -> bool {
    let digits = found.bytes().take(end).rev();
    let digits = digits
        .filter(u8::is_ascii_digit)
        .map(|digit| u32::from(digit - b'0'));
    let mut count = 0;
    let sum: u32 = digits
        .map(|digit| {
            count += 1;
            match (count % 2, digit * 2) {
                (1, _) => digit,
                (_, double) => double % 10 + double / 10,
            }
        })
        .sum();
    count >= 13 && sum.is_multiple_of(10)
}

/// A country tells how long its numbers are, so what follows does not matter.
fn iban(found: &Candidate<'_>) -> Option<usize> {
    let country = found.text.get(..2)?;
    let mut lengths = IBAN_LENGTHS.split(' ');
    let known = lengths.find_map(|entry| entry.strip_prefix(country));
    let length: usize = known?.parse().ok()?;
    let signs = found.text.bytes().enumerate();
    let mut signs = signs.filter(|(_, sign)| sign.is_ascii_alphanumeric());
    let (last, _) = signs.nth(length - 1)?;
    has_iban_check(found.text, last + 1).then_some(last + 1)
}

/// The check digits of ISO 7064, of this many first bytes.
fn has_iban_check(found: &str, end: usize) -> bool {
    let signs = || found.bytes().take(end).filter(u8::is_ascii_alphanumeric);
    // The first four count last.
    let rest = signs()
        .skip(4)
        .chain(signs().take(4))
        .fold(0, |rest, sign| {
            let value = u32::from(sign);
            match sign {
                b'0'..=b'9' => (rest * 10 + value - 48) % 97,
                _ => (rest * 100 + value - 55) % 97,
            }
        });
    rest == 1
}

/// Of the registry that SWIFT keeps.
const IBAN_LENGTHS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 \
    CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 \
    HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 \
    MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 \
    SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30";

/// No area, group or number is all zeros, and no area is 666 or beyond 899.
fn ssn(found: &str) -> bool {
    let mut parts = found.split(['-', ' ']);
    let mut is_not = |other: &str| parts.next().is_some_and(|part| part != other);
    !found.starts_with("666") && is_not("000") && is_not("00") && is_not("0000")
}

/// A fifth number after it is a port, as some write them, if it has two digits at least. Otherwise
/// it is no address but some version.
fn ipv4(found: &Candidate<'_>) -> Option<usize> {
    found.text.parse::<Ipv4Addr>().ok()?;
    let end = found.end();
    let after = found.after.bytes().skip(end + 1);
    let digits = after.take_while(u8::is_ascii_digit).count();
    let has_port = (2..=5).contains(&digits) && !found.goes_on(end + 1 + digits, ".");
    let is_version = found.follows(".") || found.goes_on(end, ".") && !has_port;
    (!is_version).then_some(end)
}

/// What is short with a `::` in it is code far more often: `::` itself, `d::add`, `1::2`.
fn ipv6(found: &Candidate<'_>) -> Option<usize> {
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    if found.before.ends_with(is_word) || follows_group(found.before) {
        return None;
    }
    found.groups().find(|&end| {
        let address = found.text.get(..end).unwrap_or_default();
        let has_long = address.split(':').any(|group| group.len() >= 3);
        let has_digit = address.contains(|sign: char| sign.is_ascii_digit());
        let mut after = found.after.get(end..).unwrap_or_default().chars();
        let is_part = match (after.next(), after.next()) {
            // A sentence goes on, or a port follows.
            (Some(':'), Some(sign)) if is_word(sign) || sign == ':' => {
                !(has_long && has_digit && sign.is_ascii_digit())
            }
            (sign, _) => sign.is_some_and(is_word),
        };
        !is_part
            && (!address.contains("::") || (has_long && has_digit))
            && address.parse::<Ipv6Addr>().is_ok()
    })
}

/// Whether a colon is before it that is of an address, and not after some word as `addr:` is.
fn follows_group(before: &str) -> bool {
    let Some(before) = before.strip_suffix(':') else {
        return false;
    };
    let word = before.rsplit(|sign: char| !sign.is_alphanumeric()).next();
    let word = word.unwrap_or_default();
    let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let begins_with_letters = word
        .chars()
        .take(2)
        .filter(|sign| sign.is_alphabetic())
        .count()
        == 2;
    let is_name = begins_with_letters || word.ends_with(char::is_alphabetic);
    match word {
        "" => before.ends_with(':'),
        _ => is_hex || !is_name,
    }
}
