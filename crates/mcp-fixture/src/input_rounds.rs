//! Tools and prompts that need input from the client before they answer, in one or more rounds of requests.

use super::parse_json;
use rmcp::{
    ErrorData,
    model::{
        ClientCapabilities, CreateMessageResult, ElicitResult, InputRequests, InputRequiredResult, InputResponses,
        ListRootsResult,
    },
};
use serde_json::{Map, Value, json};
use std::{collections::HashMap, sync::Mutex};

/// A tool or prompt that requests input before it answers.
pub(super) struct InputRounds {
    name: String,
    rounds: Vec<Round>,
    /// The answer to what the client sent last.
    answer: fn(&Value) -> String,
}

struct Round {
    /// The key of each request, its method and its parameters.
    requests: Vec<(&'static str, &'static str, Value)>,
    /// The client has to send a `requestState` back.
    needs_state: bool,
}

/// What a call returns after a round.
pub(super) enum RoundResult {
    InputRequired(InputRequiredResult),
    Answer(String),
}

/// Each `requestState` that was issued, with the tool or prompt and the round that it stands for. A changed one is
/// unknown.
#[derive(Default)]
pub(super) struct RequestStates(Mutex<HashMap<String, (String, usize)>>);

impl RequestStates {
    fn issue(&self, name: &str, round: usize) -> Result<String, ErrorData> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        let state: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        self.0.lock().expect("nothing panics while it holds this lock").insert(state.clone(), (name.to_owned(), round));
        Ok(state)
    }

    fn redeem(&self, name: &str, state: &str) -> Result<usize, ErrorData> {
        let mut issued = self.0.lock().expect("nothing panics while it holds this lock");
        match issued.get(state) {
            Some((of, round)) if of == name => {
                let round = *round;
                issued.remove(state);
                Ok(round)
            }
            _ => Err(ErrorData::invalid_params("this `requestState` was not issued here", None)),
        }
    }
}

impl InputRounds {
    /// Requests input, requests it again, or answers.
    pub(super) fn advance(
        &self,
        states: &RequestStates,
        responses: InputResponses,
        state: Option<String>,
        capabilities: Option<ClientCapabilities>,
    ) -> Result<RoundResult, ErrorData> {
        let supported = serde_json::to_value(capabilities.unwrap_or_default()).unwrap_or_default();
        let at = state.as_deref().map(|state| states.redeem(&self.name, state)).transpose()?;
        let round = &self.rounds[at.unwrap_or_default()];
        let requests = round.supported_requests(&supported)?;
        let answered =
            requests.iter().all(|(key, method, _)| responses.get(*key).is_some_and(|a| is_response_to(method, a)));
        let is_complete = answered && at.is_some() == round.needs_state;
        let next = at.unwrap_or_default() + usize::from(is_complete);
        let Some(round) = self.rounds.get(next) else {
            return Ok(RoundResult::Answer((self.answer)(&json!(responses))));
        };
        let requests = round.supported_requests(&supported)?;
        let requests = requests.iter().map(|(key, method, params)| {
            let request = json!({"method": method, "params": params});
            ((*key).to_owned(), request)
        });
        let requests: InputRequests = parse_json(requests.collect::<Map<_, _>>().into())?;
        let state = round.needs_state.then(|| states.issue(&self.name, next)).transpose()?;
        Ok(RoundResult::InputRequired(InputRequiredResult::new(Some(requests), state)))
    }
}

impl Round {
    /// The requests that this client supports. Without any, the error names the missing capabilities.
    fn supported_requests(&self, supported: &Value) -> Result<Vec<&(&'static str, &'static str, Value)>, ErrorData> {
        let requests: Vec<_> =
            self.requests.iter().filter(|(_, m, _)| supported.get(capability(m)).is_some()).collect();
        if requests.is_empty() {
            let missing: Map<_, _> =
                self.requests.iter().map(|(_, m, _)| (capability(m).to_owned(), json!({}))).collect();
            return Err(ErrorData::missing_required_client_capability(parse_json(missing.into())?));
        }
        Ok(requests)
    }
}

fn capability(method: &str) -> &str {
    method.split('/').next().unwrap_or_default()
}

/// Whether this has the form of a response to that method.
fn is_response_to(method: &str, response: &Value) -> bool {
    let response = response.clone();
    match method {
        ELICIT => serde_json::from_value::<ElicitResult>(response).is_ok(),
        SAMPLE => serde_json::from_value::<CreateMessageResult>(response).is_ok(),
        _ => serde_json::from_value::<ListRootsResult>(response).is_ok(),
    }
}

const ELICIT: &str = "elicitation/create";
const SAMPLE: &str = "sampling/createMessage";
const ROOTS: &str = "roots/list";

/// The tool or prompt of that name, if it requests input.
pub(super) fn find_rounds(name: &str) -> Option<InputRounds> {
    let form = |key, message: &str, field: &str, kind: &str| {
        let schema = json!({"type": "object", "properties": {field: {"type": kind}}, "required": [field]});
        (key, ELICIT, json!({"message": message, "requestedSchema": schema}))
    };
    let sample = |key, text: &str| {
        let message = json!({"role": "user", "content": {"type": "text", "text": text}});
        (key, SAMPLE, json!({"messages": [message], "maxTokens": 100}))
    };
    let roots = |key| (key, ROOTS, json!({}));
    let name_form = || form("user_name", "What is your name?", "name", "string");
    let capital = || sample("capital_question", "What is the capital of France?");
    let stateless = |requests| vec![Round { requests, needs_state: false }];
    let stateful = |rounds: Vec<_>| rounds.into_iter().map(|requests| Round { requests, needs_state: true }).collect();
    let greeting: fn(&Value) -> String =
        |responses| format!("Hello, {}!", text(&responses["user_name"]["content"]["name"]));
    let echo: fn(&Value) -> String = |responses| format!("heard: {responses}");
    let echo_state: fn(&Value) -> String = |responses| format!("state-ok, heard: {responses}");
    let (rounds, answer) = match name {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            (stateless(vec![name_form()]), greeting)
        }
        "test_input_required_result_sampling" | "test_missing_capability" => (stateless(vec![capital()]), echo),
        "test_input_required_result_list_roots" => (stateless(vec![roots("client_roots")]), echo),
        "test_input_required_result_capabilities" => (stateless(vec![name_form(), capital()]), echo),
        "test_input_required_result_prompt" => {
            let request = form("user_context", "What context should the prompt use?", "context", "string");
            (stateless(vec![request]), echo)
        }
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            (stateful(vec![vec![form("confirm", "Please confirm", "ok", "boolean")]]), echo_state)
        }
        "test_input_required_result_multiple_inputs" => {
            let requests = vec![name_form(), sample("greeting", "Generate a greeting"), roots("client_roots")];
            (stateful(vec![requests]), echo_state)
        }
        "test_input_required_result_multi_round" => {
            let first = form("step1", "Step 1: What is your name?", "name", "string");
            let second = form("step2", "Step 2: What is your favorite color?", "color", "string");
            (stateful(vec![vec![first], vec![second]]), echo_state)
        }
        _ => return None,
    };
    Some(InputRounds { name: name.to_owned(), rounds, answer })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
