//! What is personal data, and what only looks like it.

use super::super::pii::Sanitizer;
use crate::config::{Pii, PiiKind};
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn assert_sanitized(cases: &[(&str, &str)]) {
    let pii = Sanitizer::new(&Pii {
        kinds: PiiKind::ALL.into(),
        patterns: Vec::new(),
    });
    let pii = pii.unwrap_or_else(|invalid| panic!("{invalid:?}"));
    for (text, expected) in cases {
        let body = json!({ "prompt": text }).to_string();
        let (sanitized, _) = pii.sanitize(&body, usize::MAX).unwrap();
        let sanitized: Value = serde_json::from_str(&sanitized.unwrap_or(body)).unwrap();
        assert_eq!(sanitized["prompt"], *expected, "{text}");
    }
}

fn assert_kept(texts: &[&str]) {
    let cases: Vec<(&str, &str)> = texts.iter().map(|&text| (text, text)).collect();
    assert_sanitized(&cases);
}

#[test]
fn email_addresses() {
    assert_sanitized(&[
        ("ann@example.com", "[EMAIL-1]"),
        (
            "<ann.lee+x@mail.example.co.uk>, bob_1@x-y.de.",
            "<[EMAIL-1]>, [EMAIL-2].",
        ),
        (
            "mailto:ann@example.com?subject=a",
            "mailto:[EMAIL-1]?subject=a",
        ),
        ("'o'brien@example.com'", "'[EMAIL-1]'"),
        ("jörg@münchen.de и иван@почта.рф", "[EMAIL-1] и [EMAIL-2]"),
        ("请联系ann@example.com谢谢", "请联系[EMAIL-1]谢谢"),
        ("a@b@example.com", "a@[EMAIL-1]"),
        (
            "ann@example.com's, ann@example.com--",
            "[EMAIL-1]'s, [EMAIL-1]--",
        ),
        ("ann@xn--e1aybc.xn--p1ai", "[EMAIL-1]"),
        ("ann@example.com.1", "[EMAIL-1].1"),
        ("die john@acme.de-Adresse", "die [EMAIL-1]-Adresse"),
        (
            "john@example.com-based, john@mail.example.com-x",
            "[EMAIL-1]-based, [EMAIL-2]-x",
        ),
        ("john@example.com2 a@163.com2", "[EMAIL-1]2 [EMAIL-2]2"),
        ("?to=john%40example.com&x=1", "?to=[EMAIL-1]&x=1"),
        ("?to=a%40example.com%2Cb%40example.com", "?to=[EMAIL-1]"),
    ]);
    assert_kept(&[
        "@ann",
        "ann@",
        "a@b",
        "pkg@1.2.3-beta.x",
        "pkg@1.2.3-beta.rc1",
        "pkg@18.0.0-rc.1",
        "50%40",
        "a@.com",
        "@a.com",
        "ann at example.com",
        "a@-.de",
    ]);
    let long = "a".repeat(64);
    assert_sanitized(&[(&format!("{long}@example.com"), "[EMAIL-1]")]);
    // What is too long before the `@` is something else in front of it.
    for lead in ["a", "Contact%20%20"] {
        let before = lead.repeat(64 / lead.len() + 1);
        let kept = &before[..before.len() + 4 - 64];
        assert_sanitized(&[(
            &format!("{before}john@example.com"),
            &format!("{kept}[EMAIL-1]"),
        )]);
    }
    let dots = format!("Contact{}", ".".repeat(60));
    assert_sanitized(&[(
        &format!("{dots}john@example.com"),
        &format!("{dots}[EMAIL-1]"),
    )]);
    let list = "ann%40example.com%2C".repeat(20);
    assert_sanitized(&[(&format!("{list}bob%40example.com"), "[EMAIL-1]")]);
    assert_kept(&[&format!("a@{}.com", "b".repeat(254))]);
    assert_sanitized(&[(
        &format!("a@example.com.{}.com", "b".repeat(254)),
        &format!("[EMAIL-1].{}.com", "b".repeat(254)),
    )]);
}

#[test]
fn phone_numbers() {
    for number in [
        "+1 (415) 555-0123",
        "+14155550123",
        "+49 (0) 30 1234-5678",
        "+44 20 7946 0958",
        "+33.1.23.45.67.89",
        "0049 30 1234567",
        "(415) 555-0123",
        "415-555-0123",
        "415.555.0123",
        "1-415-555-0123",
        "1 (415) 555-0123",
        "030 12345678",
        "(030) 1234567",
        "0171/1234567",
        "020 7946 0958",
        "01.23.45.67.89",
        "01 23 45 67 89",
        "03-1234-5678",
    ] {
        let around = format!("Call {number}, or (tel:{number}).");
        assert_sanitized(&[
            (number, "[PHONE-1]"),
            (&around, "Call [PHONE-1], or (tel:[PHONE-1])."),
        ]);
    }
    assert_sanitized(&[
        ("415-555-0123/415-555-0124", "[PHONE-1]/[PHONE-2]"),
        ("2.415-555-0123", "2.[PHONE-1]"),
        ("(415) 555-0123.5", "[PHONE-1].5"),
        ("+49 170 1234567 10-18 Uhr", "[PHONE-1] 10-18 Uhr"),
        ("030 1234567 10-18 Uhr", "[PHONE-1] 10-18 Uhr"),
        ("+33 1 23 45 67 89 2024-05-06", "[PHONE-1] 2024-05-06"),
        ("+49 30 901820 2024-01-05", "[PHONE-1] 2024-01-05"),
        ("+49 170 1234567890-12345", "[PHONE-1]-12345"),
        ("0171/1234567/0171/1234568", "[PHONE-1]/[PHONE-2]"),
        ("030 1234567890.5", "[PHONE-1].5"),
    ]);
    assert_kept(&[
        "4155550123",
        "0301234567",
        "00123456789",
        "2024-01-02",
        "01.02.2024",
        "01/02/2024 10 30",
        "01.02.2024 10.30",
        "2024-01-02T03:04:05+0200",
        "1.2.3",
        "10.0.19041.1234",
        "+1.23456789",
        "x+12345678",
        "115-555-0123",
        "415-155-0123",
        "1415-555-01234",
        "9.415.555.0123",
        "415-555-0123-4",
        "550e8400-e29b-41d4-a716-446655440000",
        "1700000000",
        "3.14159265358979",
        "1 000 000 000",
        "0.12345678",
        "2024-01-02 03 04 05",
        "2024/02/03 04 05",
        "0123-4567-8901-2345-68",
    ]);
}

#[test]
fn card_numbers() {
    for number in [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "340000000000009",
        "3400 000000 00009",
        "6011000000000004",
        "4222222222222",
    ] {
        assert_sanitized(&[
            (number, "[CARD-1]"),
            (&format!("({number})."), "([CARD-1])."),
        ]);
    }
    assert_sanitized(&[
        ("4111 1111 1111 1111 12 27", "[CARD-1] 12 27"),
        ("12 4111 1111 1111 1111", "12 [CARD-1]"),
        (
            "Charge 4111 1111 1111 1111 25.00 USD",
            "Charge [CARD-1] 25.00 USD",
        ),
        ("4111111111111111 12.5", "[CARD-1] 12.5"),
        ("4111111111111111.50", "[CARD-1].50"),
        ("1.4111 1111 1111 1111", "1.[CARD-1]"),
    ]);
    assert_kept(&[
        "4111111111111112",
        "41111111111111111111111",
        "0.4111111111111111",
        "0.4111111111111111 0.4111111111111111",
        "a4111111111111111",
        "4111  1111 1111 1111",
        "1700000000000000000",
    ]);
}

#[test]
fn bank_accounts() {
    for number in [
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "GB82 WEST 1234 5698 7654 32",
        "NO9386011117947",
        "BE68 5390 0754 7034",
        "FR1420041010050500013M02606",
    ] {
        assert_sanitized(&[
            (number, "[IBAN-1]"),
            (&format!("{number} AND"), "[IBAN-1] AND"),
            (&format!("{number} BITTE ZAHLEN"), "[IBAN-1] BITTE ZAHLEN"),
            (&format!("{number}BITTE"), "[IBAN-1]BITTE"),
            (&format!("{number}x"), "[IBAN-1]x"),
        ]);
    }
    assert_sanitized(&[
        ("DE89 370400440532013000", "[IBAN-1]"),
        ("DE89-3704-0044-0532-0130-00.", "[IBAN-1]."),
        (
            "FOR DE89 3704 0044 0532 0130 00 ZU HD",
            "FOR [IBAN-1] ZU HD",
        ),
    ]);
    assert_kept(&[
        // Of a country that is not known.
        "QQ44 1234 5678 9012 345 ABCD",
        "DE88370400440532013000",
        "DE8937040044053201300",
        "xDE89370400440532013000",
        "DE89 3704",
    ]);
}

#[test]
fn social_security_numbers() {
    assert_sanitized(&[
        ("123-45-6789", "[SSN-1]"),
        ("SSN-123 45 6789.", "SSN-[SSN-1]."),
        ("123-45-6789/123-45-6780", "[SSN-1]/[SSN-2]"),
        ("1.123-45-6789.2", "1.[SSN-1].2"),
    ]);
    assert_kept(&[
        "123456789",
        "000-45-6789",
        "666-45-6789",
        "912-45-6789",
        "123-00-6789",
        "123-45-0000",
        "123-45 6789",
        "123-45-67890",
        "1-123-45-6789",
        "123-45-6789-0",
    ]);
}

#[test]
fn ip_addresses() {
    for address in [
        "192.168.1.20",
        "8.8.8.8",
        "2001:db8::1",
        "fe80::1",
        "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "::ffff:192.0.2.1",
        "2001:db8::",
        "1:2:3:4:5:6:7:8",
    ] {
        let around = format!("At {address}, {address}/32 ({address}).");
        assert_sanitized(&[
            (address, "[IP-1]"),
            (&around, "At [IP-1], [IP-1]/32 ([IP-1])."),
        ]);
    }
    assert_sanitized(&[
        ("http://10.0.0.1:8080/", "http://[IP-1]:8080/"),
        ("10.0.0.1-10.0.0.9", "[IP-1]-[IP-2]"),
        ("From 2001:db8::1: hello", "From [IP-1]: hello"),
        ("addr:2001:db8::1 ipv6:fe80::1", "addr:[IP-1] ipv6:[IP-2]"),
        ("add:2001:db8::1", "[IP-1]"),
        (
            "IP 10.0.0.1.51234 > 8.8.8.8.53: UDP",
            "IP [IP-1].51234 > [IP-2].53: UDP",
        ),
        (
            "2001:db8::1.51234 2001:db8::1:51234",
            "[IP-1].51234 [IP-1]:51234",
        ),
        ("2001:0db8:85a3:0000:0000:8a2e:0370:7334:443", "[IP-1]:443"),
    ]);
    assert_kept(&[
        "256.1.1.1",
        "1.2.3",
        "1.2.3.4.5",
        "1.3.6.1.4.1.311.21",
        "1.2.3.4.10.1",
        "v1.2.3.4",
        "01.2.3.4",
        "12:30:45",
        "std::net",
        "::",
        "d::add",
        "a[1::2]",
        "00:1a:2b:3c:4d:5e",
        "1:2:3:4:5:6:7:8:9",
        "dead::beef",
        "abc::def1::add",
        "x2001:db8::1",
    ]);
}

#[test]
fn of_what_overlaps_the_earliest_counts_and_of_those_the_longest() {
    assert_sanitized(&[
        ("415-555-0123@example.com", "[EMAIL-1]"),
        ("DE89 3704 0044 0532 0130 00", "[IBAN-1]"),
        (
            "ann@example.com 415-555-0123 ann@example.com bob@example.com",
            "[EMAIL-1] [PHONE-1] [EMAIL-1] [EMAIL-2]",
        ),
    ]);
}
