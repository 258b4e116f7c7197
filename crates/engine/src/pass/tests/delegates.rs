//! What a controller supplies reaches it through the form in which passes know it.

use aquifer_base::Sealed;

use super::*;
use crate::question::{Answers, Question};
use crate::secret::{Composition, SecretContent};

struct Says;

#[async_trait]
impl Controller for Says {
    type Spec = Value;
    type Status = Value;
    type World = ();

    fn name(&self) -> &'static str {
        "says"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT)]
    }
    fn shape(&self) -> Shape {
        Shape::default()
    }
    fn observe(&self, _: &SubjectOf<Self>, _: &View<'_>) {}
    fn decide(&self, _: &SubjectOf<Self>, (): &(), _: Timestamp) -> Plan {
        Plan::none()
    }
    async fn look(&self, question: &Question) -> Result<Value, Failure> {
        Ok(json!(question.about))
    }
    async fn listen(&self, answers: Answers) {
        answers.put(&Question::new("a", "b"), &7);
    }
    fn mint(&self, recipe: &str) -> Result<SecretContent, Failure> {
        Ok(content(recipe))
    }
    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure> {
        Ok(content(composition.recipe))
    }
}

fn content(text: &str) -> SecretContent {
    [("text".to_owned(), Sealed::new(text.as_bytes().to_vec()))].into()
}

#[tokio::test]
async fn answers_and_the_content_of_secrets_come_from_the_controller() {
    assert_eq!(StepCode::mint(&Says, "minted").unwrap(), content("minted"));
    let composition =
        Composition { recipe: "composed", arguments: &Value::Null, sources: &[], current: None };
    assert_eq!(StepCode::compose(&Says, composition).unwrap(), content("composed"));
    assert_eq!(Erased::look(&Says, &Question::new("a", "b")).await.unwrap(), json!("b"));
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let put = Arc::clone(&told);
    Erased::listen(
        &Says,
        Answers::new(move |question, answer| {
            put.lock().unwrap().push((question.about.clone(), answer));
        }),
    )
    .await;
    assert_eq!(*told.lock().unwrap(), [("b".to_owned(), json!(7))]);
}
