//! Mistakes as edits of a document. Pointers may begin with abbreviations, which stand for places in
//! the documented files.

use serde_json::{Value, json};

pub(super) type Edit = Box<dyn Fn(&mut Value)>;

/// Abbreviations of pointers into all the files.
pub(super) fn whole(pointer: &str) -> String {
    let mut pointer = pointer.to_owned();
    for (short, long) in [
        ("@value", "@plugin/configuration/value"),
        ("@plugin", "@filters/0/typed_config/config"),
        ("@routing", "@filters/1/typed_config/config"),
        ("@filters", "@hcm/http_filters"),
        ("@route", "@host/routes/0"),
        ("@host", "@hcm/route_config/virtual_hosts/0"),
        (
            "@second",
            "/static_resources/listeners/1/filter_chains/0/filters/0/typed_config",
        ),
        (
            "@hcm",
            "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config",
        ),
        ("@listener", "/static_resources/listeners/0"),
        ("@clusters", "/static_resources/clusters"),
        (
            "@http",
            "typed_extension_protocol_options/\
             envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        ),
        (
            "@override",
            "/static_resources/clusters/0/load_balancing_policy/policies/0/typed_extension_config/\
             typed_config",
        ),
    ] {
        pointer = pointer.replace(short, long);
    }
    pointer
}

/// A pointer as messages have it; what is none stays as it is.
pub(super) fn as_path(pointer: &str) -> String {
    let Some(pointer) = pointer.strip_prefix('/') else {
        return pointer.to_owned();
    };
    let mut path = String::new();
    for key in pointer.split('/') {
        if key.parse::<usize>().is_ok() {
            path += &format!("[{key}]");
        } else {
            path += &format!("{}{key}", if path.is_empty() { "" } else { "." });
        }
    }
    path
}

/// Writes a value, and the objects that lead to it where they are not there. The place after the last
/// one of a list appends.
pub(super) fn set(pointer: &str, value: Value) -> Edit {
    let pointer = whole(pointer);
    Box::new(move |document| {
        let mut target = &mut *document;
        for key in pointer.split('/').skip(1) {
            target = match target {
                Value::Array(list) => {
                    let place: usize = key.parse().unwrap();
                    if place == list.len() {
                        list.push(Value::Null);
                    }
                    &mut list[place]
                }
                other => &mut other[key],
            };
        }
        *target = value.clone();
    })
}

pub(super) fn remove(pointer: &str) -> Edit {
    let pointer = whole(pointer);
    Box::new(move |document| {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match document.pointer_mut(parent).unwrap() {
            Value::Array(list) => drop(list.remove(key.parse().unwrap())),
            Value::Object(fields) => drop(fields.remove(key).expect(key)),
            other => panic!("{other} has no {key}"),
        }
    })
}

/// Moves an element of a list to another place.
pub(super) fn reorder(pointer: &str, from: usize, to: usize) -> Edit {
    let pointer = whole(pointer);
    Box::new(move |document| {
        let list = document.pointer_mut(&pointer).unwrap();
        let list = list.as_array_mut().unwrap();
        let moved = list.remove(from);
        list.insert(to, moved);
    })
}

/// Inserts a copy of an element of a list at another place.
pub(super) fn copy(pointer: &str, from: usize, to: usize) -> Edit {
    let pointer = whole(pointer);
    Box::new(move |document| {
        let list = document.pointer_mut(&pointer).unwrap();
        let list = list.as_array_mut().unwrap();
        let copied = list[from].clone();
        list.insert(to, copied);
    })
}

pub(super) fn insert(pointer: &str, place: usize, value: Value) -> Edit {
    let pointer = whole(pointer);
    Box::new(move |document| {
        let list = document.pointer_mut(&pointer).unwrap();
        let list = list.as_array_mut().unwrap();
        list.insert(place, value.clone());
    })
}

/// In the configurations of both filters of the file with a policy.
pub(super) fn in_both(pointer: &str, value: &Value) -> [Edit; 2] {
    ["@plugin", "@routing"].map(|plugin| {
        let pointer = format!("{plugin}/configuration/value{pointer}");
        set(&pointer, value.clone())
    })
}

/// A filter of another kind.
pub(super) fn filter(kind: &str) -> Value {
    let kind = format!("type.googleapis.com/envoy.extensions.filters.http.{kind}");
    json!({"name": "other", "typed_config": {"@type": kind}})
}

pub(super) fn second_listener() -> Edit {
    copy("/static_resources/listeners", 0, 1)
}

/// What a sidecar is known by.
pub(super) fn sidecar() -> Value {
    json!({"cluster": "rolter_sidecar", "listen": "unix:///run/rolter/sidecar.sock"})
}

/// A route that goes by what these providers tell.
pub(super) fn precise(providers: &[usize]) -> Vec<Edit> {
    let mut edits = vec![
        set("@value/sidecar", sidecar()),
        remove("@value/routes/0/cache_aware"),
        set("@value/routes/0/strategy", json!("precise_cache_aware")),
    ];
    for provider in providers {
        let endpoint = format!("tcp://127.0.0.1:{}", 5557 + provider);
        let pointer = format!("@value/providers/{provider}/kv_events");
        edits.push(set(&pointer, json!({"endpoint": endpoint})));
    }
    edits
}

pub(super) fn joined(edits: impl IntoIterator<Item = Vec<Edit>>) -> Vec<Edit> {
    edits.into_iter().flatten().collect()
}
