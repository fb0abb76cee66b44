//! Fifty rules as operators write them: secrets, statements of SQL, addresses, words.

use rolter_core::config::{Action, LooksFor, Rule};

const SECRETS: [&str; 18] = [
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\bASIA[0-9A-Z]{16}\b",
    r"\bsk-(?:proj-)?[A-Za-z0-9_-]{20,}",
    r"\bsk-ant-[A-Za-z0-9_-]{20,}",
    r"\bgh[pousr]_[A-Za-z0-9]{36}",
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\bglpat-[A-Za-z0-9_-]{20}",
    r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    r"\bAIza[0-9A-Za-z_-]{35}",
    r"\bya29\.[0-9A-Za-z_-]{20,}",
    r"\bhf_[A-Za-z]{30,}",
    r"\bnpm_[A-Za-z0-9]{36}",
    r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r"-----BEGIN (?:RSA |EC |OPENSSH |DSA |PGP )?PRIVATE KEY",
    r#"(?i)\b(?:api[_-]?key|secret|password|passwd|token)\s*[:=]\s*["']?[^\s"']{8,}"#,
    r"(?i)\bpostgres(?:ql)?://[^\s:]+:[^\s@]+@\S+",
    r"(?i)\bmongodb(?:\+srv)?://[^\s:]+:[^\s@]+@\S+",
];

const QUERIES: [&str; 8] = [
    r"(?i)\bdrop\s+(?:table|database|schema)\b",
    r"(?i)\bdelete\s+from\s+\w+\s*;",
    r"(?i)\bunion\s+(?:all\s+)?select\b",
    r"(?i)\btruncate\s+table\b",
    r"(?i)\bor\s+1\s*=\s*1\b",
    r"(?i)\bxp_cmdshell\b",
    r"(?i)\binto\s+outfile\b",
    r"(?i)\balter\s+user\s+\w+",
];

const ADDRESSES: [&str; 8] = [
    r"https?://(?:[a-z0-9-]+\.)*internal\.example\.com\S*",
    r"\b10\.\d{1,3}\.\d{1,3}\.\d{1,3}\b",
    r"\b192\.168\.\d{1,3}\.\d{1,3}\b",
    r"[A-Za-z0-9._%+-]+@corp\.example\.com\b",
    r"(?i)https?://\S+\.(?:exe|scr|ps1|bat)\b",
    r"(?i)<script[^>]*>",
    r"(?i)javascript:[^\s]+",
    r"!\[[^\]]*\]\(https?://[^)]+\?[^)]*\)",
];

const PHRASES: [&str; 8] = [
    r"(?i)\bas an ai (?:language )?model\b",
    r"(?i)ignore (?:all )?(?:previous|prior) instructions",
    r"(?i)\bmy system prompt\b",
    r"(?i)rm\s+-rf\s+/",
    r"(?i)\bcurl\s+[^|\n]+\|\s*(?:sudo\s+)?(?:ba)?sh\b",
    r"\bINTERNAL[- ]USE[- ]ONLY\b",
    r"\b[A-Z]{2,5}-SECRET-\d{3,6}\b",
    r"(?i)\bproject\s+(?:bluebird|nightjar|kestrel)\b",
];

/// Lists of so many words each, which are made up: what matters is that they begin in all ways.
const LISTS: [usize; 7] = [10, 20, 40, 80, 160, 200, 250];

/// All of them. In the order in which findings are told: the word `swordfish` is found by the last
/// rule but one.
pub(crate) fn all() -> Vec<Rule> {
    let patterns = SECRETS
        .iter()
        .map(|pattern| (*pattern, redact("[secret]")))
        .chain(QUERIES.iter().map(|pattern| (*pattern, Action::Block)))
        .chain(
            ADDRESSES
                .iter()
                .map(|pattern| (*pattern, redact("[address]"))),
        )
        .chain(PHRASES.iter().map(|pattern| (*pattern, Action::Report)));
    let mut rules: Vec<(LooksFor, Action)> = patterns
        .map(|(pattern, action)| (LooksFor::Pattern(pattern.to_owned()), action))
        .collect();
    let mut number = 0;
    for (list, &count) in LISTS.iter().enumerate() {
        let mut words: Vec<String> = (number..number + count).map(word).collect();
        number += count;
        if list + 1 == LISTS.len() {
            words.push("swordfish".to_owned());
        }
        let action = match list % 3 {
            0 => redact("***"),
            1 => Action::Report,
            _ => Action::Block,
        };
        rules.push((LooksFor::Keywords(words), action));
    }
    rules.push((LooksFor::Length(1 << 20), Action::Block));
    let named = rules.into_iter().enumerate();
    named
        .map(|(index, (looks_for, action))| Rule {
            name: format!("rule-{index}"),
            looks_for,
            action,
        })
        .collect()
}

fn redact(with: &str) -> Action {
    Action::Redact(with.to_owned())
}

/// A word that is none: syllables by the digits of its number, some with umlauts, some two words.
fn word(number: usize) -> String {
    const SYLLABLES: [&str; 16] = [
        "ba", "che", "du", "fro", "gi", "hö", "ja", "klo", "mü", "ne", "pra", "qua", "sti", "tu",
        "vo", "wi",
    ];
    let syllable = |number: usize| SYLLABLES.get(number % 16).copied().unwrap_or_default();
    let middle = if number.is_multiple_of(7) { " " } else { "" };
    let [a, b, c] = [number, number / 16, number * 5 / 3].map(syllable);
    format!("{a}{b}{middle}{c}zk")
}
