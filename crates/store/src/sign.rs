//! Signatures: Ed25519 over the pre-authentication encoding of DSSE, with keys that standard tools can read.
//!
//! Key ids are computed like in securesystemslib, so that its verifiers find the key.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{Digest, KeyAnnounced, KeySignature, TaskId};
use ed25519_dalek::{Signature, Signer as _, VerifyingKey};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The DSSE payload type of receipts.
pub const RECEIPT_TYPE: &str = "application/vnd.in-toto+json";
/// The DSSE payload type of signed ledger heads.
pub const HEAD_TYPE: &str = "application/vnd.countersign.head+json";

/// The fixed beginning of an Ed25519 public key in X.509 form: the algorithm, and the length of 32 bytes.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// `DSSEv1 <length> <type> <length> <body>`: the bytes that are signed, so that no type can be mistaken for another.
fn pre_authentication_encoding(kind: &str, body: &[u8]) -> Vec<u8> {
    let mut out = format!("DSSEv1 {} {kind} {} ", kind.len(), body.len()).into_bytes();
    out.extend_from_slice(body);
    out
}

/// The secret key. Never printed, never logged.
pub struct SigningKey {
    inner: ed25519_dalek::SigningKey,
    public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.id)
    }
}

impl SigningKey {
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let inner = ed25519_dalek::SigningKey::from_bytes(seed);
        let public = PublicKey::new(inner.verifying_key());
        Self { inner, public }
    }

    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    #[must_use]
    pub fn sign(&self, kind: &str, body: &[u8]) -> [u8; 64] {
        self.inner.sign(&pre_authentication_encoding(kind, body)).to_bytes()
    }

    /// Confirms that the files of the task with this receipt were removed.
    #[must_use]
    pub fn sign_expiry(&self, task: TaskId, receipt: Digest) -> KeySignature {
        let signature = self.inner.sign(&expiry_message(task, receipt)).to_bytes();
        KeySignature { key: self.public.id, signature: STANDARD.encode(signature) }
    }

    /// Signs the announcement of another key.
    #[must_use]
    pub fn announce_key(&self, other: &PublicKey) -> KeyAnnounced {
        let signature = self.inner.sign(&announcement_message(other.id, self.public.id)).to_bytes();
        KeyAnnounced {
            key: other.id,
            public: other.bytes(),
            by: Some(self.public.id),
            signature: Some(STANDARD.encode(signature)),
        }
    }
}

fn expiry_message(task: TaskId, receipt: Digest) -> Vec<u8> {
    format!("countersign.expired.v1:{task}:{receipt}").into_bytes()
}

fn announcement_message(key: Digest, by: Digest) -> Vec<u8> {
    format!("countersign.key.v1:{key}:{by}").into_bytes()
}

/// The public key and its id.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    id: Digest,
    inner: VerifyingKey,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id)
    }
}

impl PublicKey {
    fn new(inner: VerifyingKey) -> Self {
        let public = Digest::from_bytes(inner.to_bytes());
        let description = format!(r#"{{"keytype":"ed25519","keyval":{{"public":"{public}"}},"scheme":"ed25519"}}"#);
        Self { id: Digest::sha256(&[description.as_bytes()]), inner }
    }

    pub fn from_bytes(bytes: &Digest) -> Option<Self> {
        VerifyingKey::from_bytes(bytes.as_bytes()).ok().map(Self::new)
    }

    #[must_use]
    pub fn id(&self) -> Digest {
        self.id
    }

    #[must_use]
    pub fn bytes(&self) -> Digest {
        Digest::from_bytes(self.inner.to_bytes())
    }

    /// The key in PEM form, as `openssl` reads it.
    #[must_use]
    pub fn pem(&self) -> String {
        let der = [SPKI_PREFIX.as_slice(), &self.inner.to_bytes()].concat();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    /// Reads the output of [`PublicKey::pem`].
    #[must_use]
    pub fn from_pem(text: &str) -> Option<Self> {
        let body = text.split_once("-----BEGIN PUBLIC KEY-----")?.1.split_once("-----END PUBLIC KEY-----")?.0;
        let der = STANDARD.decode(body.split_whitespace().collect::<String>()).ok()?;
        let bytes: [u8; 32] = der.strip_prefix(SPKI_PREFIX.as_slice())?.try_into().ok()?;
        Self::from_bytes(&Digest::from_bytes(bytes))
    }

    #[must_use]
    pub fn verifies(&self, kind: &str, body: &[u8], signature: &[u8]) -> bool {
        self.verifies_bytes(&pre_authentication_encoding(kind, body), signature)
    }

    fn verifies_bytes(&self, bytes: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|s| self.inner.verify_strict(bytes, &s).is_ok())
    }

    /// Whether this key confirms that the files of this task were removed.
    #[must_use]
    pub fn verifies_expiry(&self, task: TaskId, receipt: Digest, signed: &KeySignature) -> bool {
        let signature = STANDARD.decode(&signed.signature);
        signed.key == self.id && signature.is_ok_and(|s| self.verifies_bytes(&expiry_message(task, receipt), &s))
    }

    /// Whether this key signed the announcement of another key.
    #[must_use]
    pub fn verifies_announcement(&self, announcement: &KeyAnnounced) -> bool {
        let signature = announcement.signature.as_ref().and_then(|s| STANDARD.decode(s).ok());
        announcement.by == Some(self.id)
            && signature.is_some_and(|s| self.verifies_bytes(&announcement_message(announcement.key, self.id), &s))
    }
}

/// A DSSE v1 envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    pub payload: String,
    pub signatures: Vec<EnvelopeSignature>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeSignature {
    pub keyid: String,
    pub sig: String,
}

impl Envelope {
    #[must_use]
    pub fn new(kind: &str, body: &str, key: Digest, signature: &[u8]) -> Self {
        let signature = EnvelopeSignature { keyid: key.to_string(), sig: STANDARD.encode(signature) };
        Self { payload_type: kind.to_owned(), payload: STANDARD.encode(body), signatures: vec![signature] }
    }

    /// The payload, key id and signature of an envelope of this type, without checking the signature.
    pub fn open(&self, kind: &str) -> Result<(String, Digest, Vec<u8>), String> {
        if self.payload_type != kind {
            let shown: String = self.payload_type.chars().take(80).collect();
            return Err(format!("it contains {shown}, not {kind}"));
        }
        let [signature] = self.signatures.as_slice() else {
            return Err(format!("it has {} signatures, not one", self.signatures.len()));
        };
        let payload = STANDARD.decode(&self.payload).map_err(|e| format!("its payload is not base64: {e}"))?;
        let payload = String::from_utf8(payload).map_err(|_| "its payload is not text".to_owned())?;
        let key = Digest::parse(&signature.keyid).ok_or("its keyid is not 64 hex digits")?;
        let sig = STANDARD.decode(&signature.sig).map_err(|e| format!("its signature is not base64: {e}"))?;
        Ok((payload, key, sig))
    }

    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("envelopes have string keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SigningKey {
        SigningKey::from_seed(&[n; 32])
    }

    #[test]
    fn only_the_signed_bytes_verify() {
        let (key, other) = (key(1), key(2));
        let signature = key.sign(RECEIPT_TYPE, b"body");
        assert!(key.public().verifies(RECEIPT_TYPE, b"body", &signature));
        assert!(!key.public().verifies(RECEIPT_TYPE, b"bodz", &signature));
        assert!(!key.public().verifies(HEAD_TYPE, b"body", &signature));
        assert!(!other.public().verifies(RECEIPT_TYPE, b"body", &signature));
        assert!(!key.public().verifies(RECEIPT_TYPE, b"body", &signature[..63]));
    }

    #[test]
    fn a_public_key_parses_back_from_pem() {
        let key = key(3);
        assert_eq!(PublicKey::from_pem(&key.public().pem()).as_ref(), Some(key.public()));
        assert_eq!(PublicKey::from_pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), None);
        assert_eq!(PublicKey::from_pem("nothing"), None);
    }

    #[test]
    fn a_key_confirms_only_the_key_that_it_announced() {
        let (old, new, third) = (key(4), key(5), key(6));
        let mut announced = old.announce_key(new.public());
        assert!(old.public().verifies_announcement(&announced));
        assert!(!third.public().verifies_announcement(&announced));
        announced.key = third.public().id();
        assert!(!old.public().verifies_announcement(&announced));
    }

    #[test]
    fn an_envelope_returns_its_payload() {
        let key = key(7);
        let envelope = Envelope::new(HEAD_TYPE, "{}", key.public().id(), &key.sign(HEAD_TYPE, b"{}"));
        let read: Envelope = serde_json::from_str(&envelope.json()).unwrap();
        let (payload, id, signature) = read.open(HEAD_TYPE).unwrap();
        assert_eq!((payload.as_str(), id), ("{}", key.public().id()));
        assert!(key.public().verifies(HEAD_TYPE, b"{}", &signature));
        assert!(read.open(RECEIPT_TYPE).is_err());
    }
}
