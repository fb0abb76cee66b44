//! What passes over every answer of a route, whichever way it came.

use super::fields::Fields;
use std::collections::BTreeMap;

/// What passes over answers, and over requests on their way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Where it is written, for messages.
    pub path: String,
    /// What answers must not say.
    pub guardrails: Vec<Rule>,
    /// Who is asked about answers, one after the other.
    pub plugins: Vec<Plugin>,
    /// Which personal data engines do not get to see, if any.
    pub pii: Option<Pii>,
    /// What becomes of requests for a stream.
    pub on_stream: Unchecked,
    /// What becomes of requests that cannot be read, so that nothing could be done about them or
    /// about their answers.
    pub on_unread: Unchecked,
    /// The longest answer that is delivered, in bytes. Envoy has to hold so much, and each step
    /// some more.
    pub max_answer_bytes: usize,
}

/// What becomes of requests that the policy cannot pass over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchecked {
    /// They are refused, before anybody is asked.
    Refuse,
    /// They go on without it.
    Skip,
}

/// What an answer must not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name in metrics, in the access log and for clients.
    pub name: String,
    /// What it looks for.
    pub looks_for: LooksFor,
    /// What becomes of an answer in which it finds that.
    pub action: Action,
}

/// What a rule looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LooksFor {
    /// A regular expression.
    Pattern(String),
    /// Any of these words, as whole words, in upper or lower case.
    Keywords(Vec<String>),
    /// More characters than these, all texts of an answer together.
    Length(usize),
}

/// What becomes of an answer in which a rule has found something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is withheld.
    Block,
    /// This stands in the place of each finding, or of what is too long.
    Redact(String),
    /// It is counted, and the access log tells.
    Report,
}

/// Who is asked about answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Its name in metrics, in the access log and for clients.
    pub name: String,
    /// The Envoy cluster that leads to it.
    pub cluster: String,
    /// The path of the calls.
    pub path: String,
    /// How long each may take, in milliseconds.
    pub timeout_ms: u64,
    /// Whether an answer is delivered about which it could not be asked.
    pub fails_open: bool,
}

/// Which personal data engines do not get to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pii {
    /// Of these kinds, each at most once.
    pub kinds: Vec<PiiKind>,
    /// And what fits these patterns.
    pub patterns: Vec<PiiPattern>,
}

/// A kind of personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PiiKind {
    /// An e-mail address.
    Email,
    /// A phone number.
    Phone,
    /// The number of a payment card.
    Card,
    /// The number of a bank account.
    Iban,
    /// A social security number of the United States.
    Ssn,
    /// An IP address, of either version.
    Ip,
}

/// Personal data of a kind that the configuration describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PiiPattern {
    /// Its name in metrics and, in upper case, in placeholders: a letter, then letters and digits,
    /// all in lower case.
    pub name: String,
    /// A regular expression.
    pub pattern: String,
}

impl PiiKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Email,
        Self::Phone,
        Self::Card,
        Self::Iban,
        Self::Ssn,
        Self::Ip,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Ssn => "ssn",
            Self::Ip => "ip",
        }
    }
}

/// Rules, plugins and patterns of one policy at most.
const MAX_RULES: usize = 256;
/// Words of one rule at most.
const MAX_KEYWORDS: usize = 1024;
/// Bytes of a pattern or a word at most.
const MAX_PATTERN_BYTES: usize = 1024;

impl Policy {
    /// Nothing where there is none, or it is switched off. Patterns are not looked at: see
    /// [`policy::compile`](crate::policy::compile).
    fn read(parent: &Fields<'_>) -> Option<Self> {
        let fields = parent.object("policy")?;
        let enabled = fields.boolean("enabled", true);
        let policy = Self {
            path: fields.path().to_owned(),
            guardrails: read_guardrails(&fields),
            plugins: read_plugins(&fields),
            pii: fields.object("pii").map(|pii| Pii::read(&pii)),
            on_stream: Unchecked::read(&fields, "on_stream"),
            on_unread: Unchecked::read(&fields, "on_unread"),
            max_answer_bytes: fields.integer("max_answer_bytes", 1..=64 << 20, 1 << 20),
        };
        enabled.then_some(policy)
    }

    /// Whether there is anything that it does about an answer.
    pub fn judges(&self) -> bool {
        !self.guardrails.is_empty() || !self.plugins.is_empty() || self.pii.is_some()
    }
}

/// The policies of a document. What is at the top is for all routes that have none of their own.
pub(super) struct Policies {
    read: Vec<Policy>,
    of_all: Option<usize>,
}

impl Policies {
    pub(super) fn read(document: &Fields<'_>) -> Self {
        let read: Vec<Policy> = Policy::read(document).into_iter().collect();
        let of_all = (!read.is_empty()).then_some(0);
        Self { read, of_all }
    }

    /// The place of a route's policy.
    pub(super) fn of_route(&mut self, route: &Fields<'_>) -> Option<usize> {
        if !route.has("policy") {
            return self.of_all;
        }
        let policy = Policy::read(route)?;
        self.read.push(policy);
        Some(self.read.len() - 1)
    }

    /// All that some route has.
    pub(super) fn finish(self) -> Vec<Policy> {
        self.read
    }
}

impl Unchecked {
    fn read(fields: &Fields<'_>, key: &'static str) -> Self {
        match fields.one_of(key, &["refuse", "skip"]) {
            Some("skip") => Self::Skip,
            _ => Self::Refuse,
        }
    }
}

fn read_guardrails(policy: &Fields<'_>) -> Vec<Rule> {
    let mut names = BTreeMap::new();
    listed(policy, "guardrails", |fields, index| Rule {
        name: fields.unique_name(&mut names, index),
        looks_for: LooksFor::read(fields),
        action: Action::read(fields),
    })
}

fn read_plugins(policy: &Fields<'_>) -> Vec<Plugin> {
    let mut names = BTreeMap::new();
    listed(policy, "plugins", |fields, index| {
        let name = fields.unique_name(&mut names, index);
        if !fields.has("cluster") {
            let what = "missing; write the name of the Envoy cluster that leads to it";
            fields.add("cluster", what);
        }
        let path = fields.string("path").unwrap_or("/");
        if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            let what = "a path begins with \"/\", and has no spaces or control characters";
            fields.add("path", what);
        }
        Plugin {
            name,
            cluster: fields.string("cluster").unwrap_or_default().to_owned(),
            path: path.to_owned(),
            timeout_ms: fields.integer("timeout_ms", 1..=60_000, 1_000),
            fails_open: fields.one_of("on_failure", &["closed", "open"]) == Some("open"),
        }
    })
}

/// What the objects of a list say, which need not be there, up to a bound.
fn listed<T>(
    fields: &Fields<'_>,
    key: &'static str,
    mut read: impl FnMut(&Fields<'_>, usize) -> T,
) -> Vec<T> {
    let mut list = Vec::new();
    if fields.has(key) {
        list.extend(
            fields
                .objects(key)
                .enumerate()
                .map(|(index, element)| read(&element, index)),
        );
    }
    if list.len() > MAX_RULES {
        let count = list.len();
        fields.add(key, format!("{count} of them; write {MAX_RULES} at most"));
        list.truncate(MAX_RULES);
    }
    list
}

impl LooksFor {
    fn read(rule: &Fields<'_>) -> Self {
        let given = ["pattern", "keywords", "max_chars"].map(|key| rule.has(key));
        if given.iter().filter(|&&given| given).count() != 1 {
            rule.add_here("write one of pattern, keywords and max_chars, and no more");
        }
        let pattern = read_pattern(rule);
        let mut keywords = Vec::new();
        for (path, word) in rule.strings("keywords") {
            if word.trim().is_empty() || word.len() > MAX_PATTERN_BYTES {
                let what = format!("write a word of up to {MAX_PATTERN_BYTES} bytes");
                rule.add(&path, what);
            }
            keywords.push(word.to_owned());
        }
        if keywords.len() > MAX_KEYWORDS {
            let count = keywords.len();
            let what = format!("{count} of them; write {MAX_KEYWORDS} at most");
            rule.add("keywords", what);
            keywords.clear();
        }
        let chars = rule.integer("max_chars", 1..=64 << 20, 0);
        match given {
            [true, ..] => Self::Pattern(pattern),
            [_, true, _] => {
                rule.require_some("keywords");
                Self::Keywords(keywords)
            }
            _ => Self::Length(chars),
        }
    }
}

impl Action {
    fn read(rule: &Fields<'_>) -> Self {
        if !rule.has("action") {
            rule.add("action", "missing; write one of: block, redact, report");
        }
        let action = rule.one_of("action", &["block", "redact", "report"]);
        let with = rule.string("replacement");
        if with.is_some_and(|with| with.len() > MAX_PATTERN_BYTES) {
            let what = format!("write a text of up to {MAX_PATTERN_BYTES} bytes");
            rule.add("replacement", what);
        }
        match action {
            Some("redact") => Self::Redact(with.unwrap_or("[redacted]").to_owned()),
            action => {
                if with.is_some() {
                    rule.add("replacement", "is for action: redact alone; remove it");
                }
                if action == Some("report") {
                    Self::Report
                } else {
                    Self::Block
                }
            }
        }
    }
}

impl Pii {
    fn read(fields: &Fields<'_>) -> Self {
        let mut kinds = Vec::new();
        for (path, text) in fields.strings("kinds") {
            match PiiKind::ALL.into_iter().find(|kind| kind.as_str() == text) {
                None => {
                    let known = PiiKind::ALL.map(PiiKind::as_str).join(", ");
                    fields.add(&path, format!("{text:?}; write one of: {known}"));
                }
                Some(kind) if kinds.contains(&kind) => {
                    fields.add(&path, format!("{text:?} is here already"));
                }
                Some(kind) => kinds.push(kind),
            }
        }
        if !fields.has("kinds") {
            kinds.extend(PiiKind::ALL);
        }
        let mut names = BTreeMap::new();
        let patterns = listed(fields, "patterns", |pattern, index| {
            PiiPattern::read(pattern, &mut names, index)
        });
        if kinds.is_empty() && patterns.is_empty() {
            fields.add_here("looks for nothing; write kinds or patterns");
        }
        Self { kinds, patterns }
    }
}

impl PiiPattern {
    fn read(fields: &Fields<'_>, names: &mut BTreeMap<String, usize>, index: usize) -> Self {
        let name = fields.unique_name(names, index);
        let is_word = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.len() <= 32
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        // What stands for what looks like a placeholder is named so.
        let is_taken = |kind: &&str| **kind == name;
        let kinds = PiiKind::ALL.map(PiiKind::as_str);
        if kinds.iter().chain(&["text"]).any(is_taken) {
            let what = format!("{name:?} is a kind of its own; write another name");
            fields.add("name", what);
        } else if !name.is_empty() && !is_word {
            let what = "write a lower-case letter, then up to 31 lower-case letters and digits";
            fields.add("name", format!("{name:?}; {what}"));
        }
        if !fields.has("pattern") {
            fields.add("pattern", "missing; write a regular expression");
        }
        Self {
            name,
            pattern: read_pattern(fields),
        }
    }
}

/// A regular expression; empty where there is none.
fn read_pattern(fields: &Fields<'_>) -> String {
    let pattern = fields.string("pattern").unwrap_or_default();
    if pattern.len() > MAX_PATTERN_BYTES {
        let what = format!("write a pattern of up to {MAX_PATTERN_BYTES} bytes");
        fields.add("pattern", what);
        return String::new();
    }
    pattern.to_owned()
}
