"""Sort sentences by intent from five examples per intent, and answer "out of scope" if no intent fits.

python examples/text_intents.py

With clinc150_minilm.npz in $POLYSHOT_DATA: CLINC150 as MiniLM embeddings, computed beforehand; five banking intents and
the data set's own out-of-scope sentences. Without it: a few sentences written for this example, as TF-IDF vectors; they
are easy, so a perfect score there says nothing.
"""

import os
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import roc_auc_score

from polyshot.estimator import OneVsEachClassifier

FALSE_ALARMS = 0.1  # at most so many sentences with an intent are called out of scope, on average
SENTENCES = {
    "balance": "what is my account balance|how much money is in my account|tell me my bank balance|"
    "show my account balance|how much money do i have in the bank|is there money left in my account",
    "weather": "what is the weather today|will it rain tomorrow|how is the weather outside|is it going to rain today|"
    "tell me the weather forecast|is rain in the forecast for tomorrow",
    "alarm": "set an alarm for six|wake me up at seven|please set my alarm clock|wake me with an alarm at six|"
    "i need an alarm for seven in the morning|set the alarm clock to wake me",
}
OUT_OF_SCOPE = "who painted this picture|how tall are giraffes|sing a song about cats|which team won that game"


def built_in() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Support X, y, queries with labels and out-of-scope queries, from the sentences above."""
    pairs = [(s, intent) for intent, text in SENTENCES.items() for s in text.split("|")]
    train = [p for k, p in enumerate(pairs) if k % 6 < 4]
    test = [p for k, p in enumerate(pairs) if k % 6 >= 4]
    vectors = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)).fit([s for s, _ in train])

    def embed(sentences: list[str]) -> np.ndarray:
        return np.asarray(vectors.transform(sentences).toarray())

    X, queries = embed([s for s, _ in train]), embed([s for s, _ in test])
    return X, np.array([i for _, i in train]), queries, np.array([i for _, i in test]), embed(OUT_OF_SCOPE.split("|"))


def clinc150(path: Path, n_way: int = 5, n_shot: int = 5) -> tuple[np.ndarray, ...]:
    """The same from CLINC150: the first banking intents, with five sentences to learn from and twenty queries each.

    Drawn at random, because neighbours in the file are paraphrases of one sentence.
    """
    generator = np.random.default_rng(0)
    with np.load(path) as file:
        X, labels, names, domains = file["X"].astype(float), file["labels"], file["class_names"], file["class_domain"]
    classes = np.flatnonzero(domains == "banking")[:n_way]
    rows = [generator.permutation(np.flatnonzero(labels == c)) for c in classes]
    support, queries = (np.concatenate([r[part] for r in rows]) for part in (slice(0, n_shot), slice(n_shot, 25)))
    return X[support], names[labels[support]], X[queries], names[labels[queries]], X[labels < 0][:100]


def main() -> dict[str, float]:
    """Fit, predict, and print how well "out of scope" is recognised."""
    path = Path(os.environ.get("POLYSHOT_DATA", ".")) / "clinc150_minilm.npz"
    X, y, queries, truth, outside = clinc150(path) if path.is_file() else built_in()
    model = OneVsEachClassifier().fit(X, y)
    probabilities, kept = model.predict_proba(queries), model.outlier_p_value(queries) >= FALSE_ALARMS
    for k in np.linspace(0, len(queries) - 1, 5).astype(int):
        answer = model.predict(queries[[k]])[0] if kept[k] else "out of scope"
        print(f"{truth[k]:>22} -> {answer:<22} p = {probabilities[k].max():.2f}")
    scores = model.outlier_score(np.concatenate([queries, outside]))
    result = {
        "accuracy": model.score(queries, truth),
        "out of scope found": float((model.outlier_p_value(outside) < FALSE_ALARMS).mean()),
        "in scope kept": float(kept.mean()),
        "AUROC": float(roc_auc_score(np.repeat([0, 1], [len(queries), len(outside)]), scores)),
    }
    print(", ".join(f"{name} {value:.2f}" for name, value in result.items()))
    return result


if __name__ == "__main__":
    main()
