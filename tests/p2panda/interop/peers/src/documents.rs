//! Documents by p2panda-rs: told what to do by lines of JSON, answers each with one.
//!
//! ```text
//! {"do": "schema", "id": ID, "fields": {NAME: TYPE, ...}}
//! {"do": "publish", "key": HEX, "schema": ID, "action": ACTION, "previous": [ID, ...], "fields": {...}}
//!     -> {"id": ID, "entry": HEX, "operation": HEX}
//! {"do": "take", "schema": ID, "entry": HEX, "operation": HEX} -> {"id": ID}
//! {"do": "document", "id": ID} -> {"order": [ID, ...], "view": VIEW, "fields": {...} or null}
//! ```
//!
//! Bytes and ids are hex, a view is a list of ids.  What is refused is answered with `error`.

use std::collections::HashMap;
use std::io::{stdin, BufRead};

use anyhow::{anyhow, Context, Result};
use p2panda_rs::api::publish;
use p2panda_rs::document::traits::AsDocument;
use p2panda_rs::document::{DocumentBuilder, DocumentId, DocumentViewId};
use p2panda_rs::entry::traits::AsEncodedEntry;
use p2panda_rs::entry::EncodedEntry;
use p2panda_rs::identity::KeyPair;
use p2panda_rs::operation::decode::decode_operation;
use p2panda_rs::operation::encode::encode_operation;
use p2panda_rs::operation::{
    EncodedOperation, OperationAction, OperationBuilder, OperationId, OperationValue,
    PinnedRelation, PinnedRelationList, Relation, RelationList,
};
use p2panda_rs::schema::{FieldType, Schema, SchemaId};
use p2panda_rs::storage_provider::traits::OperationStore;
use p2panda_rs::test_utils::memory_store::helpers::send_to_store;
use p2panda_rs::test_utils::memory_store::MemoryStore;
use serde_json::{json, Map, Value};

#[derive(Default)]
struct Documents {
    store: MemoryStore,
    schemas: HashMap<String, Schema>,
}

fn text<'a>(value: &'a Value) -> Result<&'a str> {
    value.as_str().with_context(|| format!("no text: {value}"))
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value
        .as_array()
        .with_context(|| format!("no list: {value}"))
}

fn map(value: &Value) -> Result<&Map<String, Value>> {
    value
        .as_object()
        .with_context(|| format!("no map: {value}"))
}

fn document_id(value: &Value) -> Result<DocumentId> {
    Ok(text(value)?.parse()?)
}

fn view(value: &Value) -> Result<DocumentViewId> {
    let ids: Result<Vec<OperationId>> = list(value)?
        .iter()
        .map(|id| Ok(text(id)?.parse()?))
        .collect();
    Ok(DocumentViewId::new(&ids?))
}

/// The value of a field as it is given in JSON.
fn read(value: &Value, kind: &FieldType) -> Result<OperationValue> {
    let none = || anyhow!("no {kind}: {value}");
    Ok(match kind {
        FieldType::Boolean => value.as_bool().ok_or_else(none)?.into(),
        FieldType::Integer => value.as_i64().ok_or_else(none)?.into(),
        FieldType::Float => value.as_f64().ok_or_else(none)?.into(),
        FieldType::String => text(value)?.into(),
        FieldType::Bytes => OperationValue::Bytes(hex::decode(text(value)?)?),
        FieldType::Relation(_) => OperationValue::Relation(Relation::new(document_id(value)?)),
        FieldType::PinnedRelation(_) => {
            OperationValue::PinnedRelation(PinnedRelation::new(view(value)?))
        }
        FieldType::RelationList(_) => {
            let ids: Result<_> = list(value)?.iter().map(document_id).collect();
            OperationValue::RelationList(RelationList::new(ids?))
        }
        FieldType::PinnedRelationList(_) => {
            let views: Result<_> = list(value)?.iter().map(view).collect();
            OperationValue::PinnedRelationList(PinnedRelationList::new(views?))
        }
    })
}

/// The same the other way.
fn show(value: &OperationValue) -> Value {
    let ids =
        |view: &DocumentViewId| -> Vec<String> { view.iter().map(|id| id.to_string()).collect() };
    match value {
        OperationValue::Boolean(found) => json!(found),
        OperationValue::Bytes(found) => json!(hex::encode(found)),
        OperationValue::Integer(found) => json!(found),
        OperationValue::Float(found) => json!(found),
        OperationValue::String(found) => json!(found),
        OperationValue::Relation(found) => json!(found.document_id().to_string()),
        OperationValue::PinnedRelation(found) => json!(ids(found.view_id())),
        OperationValue::RelationList(found) => {
            let found = found.document_ids().iter();
            json!(found.map(|id| id.to_string()).collect::<Vec<_>>())
        }
        OperationValue::PinnedRelationList(found) => {
            json!(found
                .document_view_ids()
                .iter()
                .map(ids)
                .collect::<Vec<_>>())
        }
    }
}

impl Documents {
    fn schema(&self, id: &Value) -> Result<&Schema> {
        let id = text(id)?;
        match self.schemas.get(id) {
            Some(schema) => Ok(schema),
            None => Ok(Schema::get_system(SchemaId::new(id)?)?),
        }
    }

    fn learn(&mut self, told: &Value) -> Result<Value> {
        let mut fields: Vec<(&str, FieldType)> = Vec::new();
        for (name, kind) in map(&told["fields"])? {
            fields.push((name, text(kind)?.parse()?));
        }
        let id = text(&told["id"])?;
        let schema = Schema::new(&SchemaId::new(id)?, "for tests", &fields)?;
        self.schemas.insert(id.to_string(), schema);
        Ok(json!({}))
    }

    async fn publish(&self, told: &Value) -> Result<Value> {
        let schema = self.schema(&told["schema"])?;
        let key = KeyPair::from_private_key_str(text(&told["key"])?)?;
        let mut fields: Vec<(&str, OperationValue)> = Vec::new();
        for (name, value) in map(&told["fields"])? {
            let kind = schema
                .fields()
                .get(name)
                .with_context(|| format!("no field {name}"))?;
            fields.push((name, read(value, kind)?));
        }
        let made = OperationBuilder::new(schema.id());
        let operation = match text(&told["action"])? {
            "create" => made.fields(&fields),
            "update" => made
                .action(OperationAction::Update)
                .previous(&view(&told["previous"])?)
                .fields(&fields),
            _ => made
                .action(OperationAction::Delete)
                .previous(&view(&told["previous"])?),
        }
        .build()?;
        let (entry, _) = send_to_store(&self.store, &operation, schema, &key)
            .await
            .map_err(|error| anyhow!("{error}"))?;
        let operation = encode_operation(&operation)?;
        Ok(json!({
            "id": entry.hash().to_string(),
            "entry": entry.to_string(),
            "operation": operation.to_string(),
        }))
    }

    async fn take(&self, told: &Value) -> Result<Value> {
        let schema = self.schema(&told["schema"])?;
        let entry = EncodedEntry::from_bytes(&hex::decode(text(&told["entry"])?)?);
        let operation = EncodedOperation::from_bytes(&hex::decode(text(&told["operation"])?)?);
        let plain = decode_operation(&operation)?;
        publish(&self.store, schema, &entry, &plain, &operation).await?;
        Ok(json!({"id": entry.hash().to_string()}))
    }

    async fn document(&self, told: &Value) -> Result<Value> {
        let id = document_id(&told["id"])?;
        let found = self.store.get_operations_by_document_id(&id).await?;
        let (document, sorted) = DocumentBuilder::from(&found).build()?;
        let fields = document.fields().map(|fields| {
            let pairs = fields
                .iter()
                .map(|(name, found)| (name.clone(), show(found.value())));
            Value::Object(pairs.collect())
        });
        Ok(json!({
            "order": sorted.iter().map(|(id, ..)| id.to_string()).collect::<Vec<_>>(),
            "view": document.view_id().to_string(),
            "fields": fields,
        }))
    }

    async fn answer(&mut self, line: &str) -> Result<Value> {
        let told: Value = serde_json::from_str(line)?;
        match text(&told["do"])? {
            "schema" => self.learn(&told),
            "publish" => self.publish(&told).await,
            "take" => self.take(&told).await,
            "document" => self.document(&told).await,
            other => Err(anyhow!("cannot {other}")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut documents = Documents::default();
    for line in stdin().lock().lines() {
        let answer = documents.answer(&line?).await;
        println!(
            "{}",
            answer.unwrap_or_else(|error| json!({"error": error.to_string()}))
        );
    }
    Ok(())
}
