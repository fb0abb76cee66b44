//! Where the schema's properties are in the schema's examples.

use serde_json::{Map, Value};

/// A part of the schema: what is written there, and what that refers to. What is written first
/// counts first.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    written: Vec<&'a Value>,
    /// The name of the last definition that was referred to.
    name: &'a str,
    schema: &'a Value,
}

/// A property at a place of an example where its object is.
pub(crate) struct Place<'a> {
    /// Its object's name in the schema, and its own.
    pub(crate) what: String,
    pub(crate) node: Node<'a>,
    pub(crate) is_required: bool,
    /// Of all properties of its object.
    pub(crate) names: Vec<&'a str>,
    /// The example, and the place of the object in it.
    pub(crate) example: &'a Value,
    pub(crate) object: String,
    pub(crate) key: &'a str,
    /// Its value there, where it has one.
    pub(crate) value: Option<&'a Value>,
}

/// All places of all properties.
pub(crate) fn all(schema: &Value) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    let root = Node::of(schema, schema, "document");
    for example in schema["examples"].as_array().into_iter().flatten() {
        collect(&root, example, example, "", &mut places);
    }
    places
}

/// The properties of the whole schema, each as [`Place::what`] has it.
pub(crate) fn properties(schema: &Value) -> Vec<String> {
    let definitions = schema["$defs"].as_object().into_iter().flatten();
    let objects = definitions.map(|(name, definition)| (name.as_str(), definition));
    [("document", schema)]
        .into_iter()
        .chain(objects)
        .flat_map(|(name, object)| {
            let keys = object["properties"].as_object().into_iter().flatten();
            keys.map(move |(key, _)| format!("{name}.{key}"))
        })
        .collect()
}

fn collect<'a>(
    node: &Node<'a>,
    example: &'a Value,
    value: &'a Value,
    pointer: &str,
    places: &mut Vec<Place<'a>>,
) {
    if let Value::Array(list) = value {
        if let Some(items) = node.items() {
            for (index, element) in list.iter().enumerate() {
                collect(
                    &items,
                    example,
                    element,
                    &format!("{pointer}/{index}"),
                    places,
                );
            }
        }
        return;
    }
    let properties = node.get("properties").and_then(Value::as_object);
    let required = node.get("required").and_then(Value::as_array);
    for (key, written) in properties.into_iter().flatten() {
        let property = Node::of(written, node.schema, node.name);
        let child = value.get(key);
        places.push(Place {
            what: format!("{}.{key}", node.name),
            node: property.clone(),
            is_required: required.is_some_and(|keys| keys.iter().any(|other| other == key)),
            names: properties
                .into_iter()
                .flat_map(Map::keys)
                .map(String::as_str)
                .collect(),
            example,
            object: pointer.to_owned(),
            key,
            value: child,
        });
        if let Some(child) = child {
            collect(
                &property,
                example,
                child,
                &format!("{pointer}/{key}"),
                places,
            );
        }
    }
}

impl<'a> Node<'a> {
    fn of(written: &'a Value, schema: &'a Value, name: &'a str) -> Self {
        let mut node = Self {
            written: vec![written],
            name,
            schema,
        };
        let mut last = written;
        while let Some(name) = last["$ref"].as_str() {
            let name = name.strip_prefix("#/$defs/").expect("a definition");
            last = &schema["$defs"][name];
            node.written.push(last);
            node.name = name;
        }
        node
    }

    pub(crate) fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.written.iter().find_map(|written| written.get(keyword))
    }

    pub(crate) fn items(&self) -> Option<Self> {
        let items = self.get("items")?;
        Some(Self::of(items, self.schema, self.name))
    }

    /// Whether it is a list of objects.
    pub(crate) fn has_objects(&self) -> bool {
        self.items()
            .is_some_and(|items| items.get("properties").is_some())
    }

    pub(crate) fn is(&self, kind: &str) -> bool {
        self.get("type").is_some_and(|it| it == kind)
    }

    pub(crate) fn number(&self, keyword: &str) -> Option<f64> {
        self.get(keyword)?.as_f64()
    }

    pub(crate) fn count(&self, keyword: &str) -> Option<usize> {
        self.get(keyword)?.as_u64()?.try_into().ok()
    }
}

impl Place<'_> {
    /// The example with another value here, or with none.
    pub(crate) fn with(&self, value: Option<&Value>) -> Value {
        let mut document = self.example.clone();
        let object = document.pointer_mut(&self.object);
        let object = object.and_then(Value::as_object_mut).expect("its object");
        match value {
            Some(value) => object.insert(self.key.to_owned(), value.clone()),
            None => object.remove(self.key),
        };
        document
    }
}
