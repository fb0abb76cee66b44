//! Answers of 16 KB: prose, other languages, code.

use fastrand::Rng;
use serde_json::json;

/// An answer of a chat, and which rules find something in it.
pub(crate) struct Answer {
    pub(crate) what: &'static str,
    pub(crate) json: String,
    pub(crate) findings: Vec<usize>,
}

const BYTES: usize = 16 << 10;

const ENGLISH: [&str; 14] = [
    "The harbour was quiet before sunrise, and only the gulls seemed to have somewhere to be. ",
    "In 1998 the committee published a report of 214 pages, which almost nobody read to the end. ",
    "You can install it with `pip install requests==2.31.0`, then restart the service.\n\n",
    "First, let's look at why the query is slow: it scans every row, even though an index exists. ",
    "However, that doesn't mean you should delete anything from production just yet! ",
    "| Option | Cost | Notes |\n|---|---|---|\n| A | $1,250.00 | cheaper, but slower |\n",
    "See https://docs.python.org/3/library/asyncio-task.html#coroutines for the details. ",
    "Dr. Hayes (born 12 May 1961) argued that most \"obvious\" answers are merely familiar ones. ",
    "- **Secret** ingredients are rarely secret: butter, salt, time.\n- Taste as you go.\n",
    "A token bucket admits bursts; a leaky bucket, by contrast, smooths them out over time. ",
    "Write to support@example.org or call the desk between 9:00 and 17:30 on weekdays. ",
    "What surprised me was the key observation on page 37: nothing was ever measured twice. ",
    "We drop the assumption of linearity, alter the model slightly, and the union of both fits. ",
    "Its skin is rough, its script unreadable, and as an aid to memory it is quite useless. ",
];

const OTHERS: [&str; 12] = [
    "Für Anfänger genügt es völlig, die Übungen täglich zehn Minuten lang zu wiederholen. ",
    "Größere Änderungen müssen vorher geprüft werden; außerdem fällt eine Gebühr an. ",
    "L'été dernier, nous avons goûté des crêpes à la châtaigne près de la vieille forêt. ",
    "¿Cuánto costará el envío a España si añado otro libro mañana por la mañana? ",
    "Быстрая лиса перепрыгнула через ленивую собаку, и никто этого не заметил. ",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "人工智能模型可以帮助用户总结长篇文章，但仍需要人工检查结果。",
    "안녕하세요, 오늘 회의는 오후 세 시에 시작됩니다. 자료를 미리 읽어 주세요. ",
    "Η απάντηση εξαρτάται από το πώς θέτει κανείς την ερώτηση. ",
    "Zażółć gęślą jaźń, powiedział żółw, a potem poszedł spać. 😀🎉 ",
    "هذا النص قصير لكنه يكفي لاختبار الاتجاه من اليمين إلى اليسار. ",
    "The rest is plain English, with a naïve café here and there. ",
];

const CODE: [&str; 6] = [
    "```python\ndef total(rows: list[dict]) -> float:\n    \"\"\"Adds up what is owed.\"\"\"\n    return sum(float(row[\"amount\"]) for row in rows if row.get(\"open\"))\n```\n",
    "```sql\nSELECT u.id, u.name, count(*) FROM users u JOIN orders o ON o.user_id = u.id\nWHERE o.created > now() - interval '7 days' GROUP BY 1, 2 ORDER BY 3 DESC;\n```\n",
    "```sh\ncurl -sS -o out.json https://api.example.org/v1/items?limit=50\njq -r '.items[].name' out.json | sort -u\n```\n",
    "```rust\nlet config: Config = toml::from_str(&text).context(\"reading the configuration\")?;\nlet listener = TcpListener::bind((\"127.0.0.1\", config.port)).await?;\n```\n",
    "```js\nconst token = await getToken(); // never log this\nheaders.set('authorization', `Bearer ${token}`);\n```\n",
    "```yaml\nservices:\n  web:\n    image: nginx:1.27\n    ports: [\"8080:80\"]\n    environment: { LOG_LEVEL: debug, PASSWORD_FILE: /run/pw }\n```\n",
];

/// What is found in one of them: secrets, a mail address, words.
const FOUND: [&str; 4] = [
    "Use the key sk-proj-abcdefghijklmnopqrstuvwx0123 for that. ",
    "Its pair is AKIAIOSFODNN7EXAMPLE, as you know. ",
    "Ask jane.doe@corp.example.com about it. ",
    "The word is Swordfish. ",
];

pub(crate) fn all() -> Vec<Answer> {
    let clean = |what, sentences: &[&[&str]]| Answer {
        what,
        json: chat(&text(sentences)),
        findings: Vec::new(),
    };
    vec![
        clean("English", &[&ENGLISH]),
        clean("many languages", &[&OTHERS]),
        clean("code and prose", &[&CODE, &ENGLISH]),
        Answer {
            what: "English, a finding in every fifth sentence",
            json: chat(&text(&[&ENGLISH, &FOUND])),
            findings: vec![0, 2, 29, 48],
        },
    ]
}

/// Sentences in any order, each time with another number in between.
fn text(sentences: &[&[&str]]) -> String {
    let mut rng = Rng::with_seed(16);
    let all: Vec<&str> = sentences.concat();
    let mut text = String::new();
    while text.len() < BYTES {
        let sentence = rng.choice(&all).copied().unwrap_or_default();
        text.push_str(sentence);
        text.push_str(&format!("({}) ", rng.u32(0..100_000)));
    }
    text
}

fn chat(content: &str) -> String {
    json!({
        "id": "chatcmpl-0c7e1a5f",
        "object": "chat.completion",
        "created": 1_764_500_000,
        "model": "llama-3.1-70b",
        "choices": [{
            "index": 0,
            "message": { "role": "assistant", "content": content },
            "finish_reason": "stop",
            "logprobs": null,
        }],
        "usage": { "prompt_tokens": 512, "completion_tokens": 4_096, "total_tokens": 4_608 },
    })
    .to_string()
}
