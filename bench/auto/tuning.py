"""Prompts that the rules were tuned on: short templates in English, German and French."""

import random

from bench.auto.prompts import LARGE, SMALL, LabelledPrompt, Task, TaskKind, draw, schema, tool

_SYSTEMS = (
    "You are the help desk of an insurance company. Answer in the language of the customer. " * 6,
    "You are a teacher's assistant. Explain things simply and avoid jargon. " * 3,
    "You are a helpful assistant.",
)
_COUNTRIES = ("Peru", "Norway", "Kenya", "Canada", "Vietnam", "Austria", "Senegal", "Chile")
_TOPICS = ("volcanoes", "compound interest", "the French Revolution", "photosynthesis", "chess")
_SENTENCES = (
    "Me and him goes to the market every weeks.",
    "The meeting was held on Tuesday and nobody did not come.",
    "Please to send me the document until Friday.",
)
_CODE = (
    "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
    "    return total / len(values)",
    "function debounce(fn, wait) {\n  let timer;\n  return (...args) => {\n    "
    "clearTimeout(timer);\n"
    "    timer = setTimeout(() => fn(...args), wait);\n  };\n}",
    "SELECT u.name, COUNT(*) FROM users u JOIN orders o ON o.user = u.id GROUP BY u.name",
    "public class Stack {\n    private int[] data = new int[8];\n    public void push(int x) {\n"
    "        data[top++] = x;\n    }\n}",
    "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\nKeyError: 'name'",
)


_NEWS = (
    "The vendor released a new version of its compiler, whose report on memory is clearer; scripts "
    "that parse the old form have to be changed by the end of the year.",
    "Our new web page has a design with fewer colours, and its search function now also finds "
    "parts "
    "by their number. The program for resellers starts in May.",
    "The committee compared three strategies and recommends the second one, as it needs no "
    "change of "
    "the software and no migration of the accounts.",
    "Wartung: Am Sonntag wird die Datenbank aktualisiert; das Programm ist dann nicht erreichbar.",
    "La nouvelle fonction de l'application permet de trier les messages par date.",
)


def _trap(rng: random.Random) -> Task:
    """Return an easy question with a word of hard ones."""
    return Task(
        rng.choice(
            (
                "What does API stand for?",
                "Who invented Java, and when?",
                "Which function does the liver have?",
                "Is vitamin C good for a cold?",
                "When was the design of the Opera House chosen?",
                "Write a short birthday card for my boss, who loves SQL.",
                "Wer hat Python erfunden?",
                "Which script do people write in Georgia?",
                "What is an algorithm, in one sentence?",
                "Where can I report a stolen bicycle?",
                "Write a poem about a compiler",
            )
        )
    )


def _news(rng: random.Random) -> Task:
    """Return an easy task on a text with words of hard ones."""
    text = " ".join(rng.choices(_NEWS, k=rng.randint(1, 4)))
    ask = rng.choice(
        (
            "Summarize:",
            "Make this shorter:",
            "Fasse zusammen:",
            "Translate to French:",
            "Fix typos:",
        )
    )
    return Task(f"{ask} {text}")


def _fields(rng: random.Random) -> Task:
    """Return values to find in a mail."""
    text = " ".join(rng.choices(_NEWS, k=rng.randint(0, 3)))
    form = schema(date={"type": "string"}, amount={"type": "number"})
    return Task(
        f"Extract date and amount: Dear Sir, {text} Please pay {rng.randint(10, 99)} dollars by "
        f"May 3.",
        fields={"response_format": form},
    )


def _hello(rng: random.Random) -> Task:
    return Task(rng.choice(("Hi!", "Guten Morgen", "Salut, ça va ?", "Thank you so much!", "ok")))


def _question(rng: random.Random) -> Task:
    country = rng.choice(_COUNTRIES)
    return Task(
        rng.choice(
            (
                f"What is the capital of {country}?",
                f"Wie viele Einwohner hat {country}?",
                f"Quelle est la monnaie de {country} ?",
                f"Tell me a fact about {rng.choice(_TOPICS)}.",
                f"Explain {rng.choice(_TOPICS)} to a child.",
                "Who wrote Faust?",
                "What is the dress code for a wedding?",
            )
        )
    )


def _fix(rng: random.Random) -> Task:
    return Task(f"Fix the grammar: {rng.choice(_SENTENCES)}")


def _short_summary(rng: random.Random) -> Task:
    text = " ".join(rng.choices(_SENTENCES, k=rng.randint(4, 12)))
    return Task(f"Summarize this in one sentence:\n\n{text}")


def _translate(rng: random.Random) -> Task:
    return Task(f"Übersetze ins Englische: Ich komme aus {rng.choice(_COUNTRIES)}.")


def _label(rng: random.Random) -> Task:
    form = schema(sentiment={"enum": ["positive", "negative"]})
    text = rng.choice(("I love it", "Never again", "It broke after a day"))
    return Task(f"Classify: {text}", fields={"response_format": form})


def _weather(rng: random.Random) -> Task:
    tools = [tool("get_weather", "Returns the weather.", "city")]
    return Task(f"How warm is it in {rng.choice(_COUNTRIES)} today?", fields={"tools": tools})


def _debug(rng: random.Random) -> Task:
    ask = rng.choice(
        ("Why does this fail?", "Warum ist das falsch?", "Optimize this code.", "Fix:")
    )
    return Task(f"{ask}\n\n{rng.choice(_CODE)}")


def _write(rng: random.Random) -> Task:
    language = rng.choice(("Python", "JavaScript", "SQL", "Java"))
    return Task(
        rng.choice(
            (
                f"Write a {language} function that removes duplicates from a list.",
                f"Schreibe ein Programm in {language}, das Primzahlen ausgibt.",
                f"Implement binary search in {language}, with unit tests.",
                "Write a script that renames all files in a folder.",
                "Write a regex for e-mail addresses.",
            )
        )
    )


def _edit(rng: random.Random) -> Task:
    tools = [tool("edit", "Edits a file.", "path", "patch"), tool("test", "Runs tests.", "path")]
    return Task(
        f"Add a check for empty input and run the tests.\n{rng.choice(_CODE)}", (), {"tools": tools}
    )


def _long(rng: random.Random) -> Task:
    text = " ".join(rng.choices(_SENTENCES, k=rng.randint(150, 300)))
    return Task(f"{text}\n\nAnalyse the style of this text, and list all mistakes by kind.")


def _reason(rng: random.Random) -> Task:
    n = rng.randint(3, 20)
    return Task(
        rng.choice(
            (
                f"Prove that {n}^n - 1 is divisible by {n - 1}.",
                f"A train leaves at {n}:00 with 80 km/h, another one two hours later with 120 "
                f"km/h. "
                "When do they meet? Think step by step.",
                f"Beweise, dass es unendlich viele Primzahlen der Form 4k+{n % 4} gibt.",
                f"Solve for x and explain each step: {n}x^2 - 7x + 2 = 0",
            )
        )
    )


def _several(rng: random.Random) -> Task:
    topic = rng.choice(_TOPICS)
    return Task(
        f"What causes {topic}? Who studied it first? Why did it matter? What is still unknown? "
    )


def _choose(rng: random.Random) -> Task:
    left, right = rng.sample(("MySQL", "MongoDB", "Cassandra", "DynamoDB"), 2)
    return Task(
        f"Compare {left} with {right} for a shop with {rng.randint(2, 90)} million users, "
        f"discuss the "
        "pros and cons, and suggest an architecture."
    )


def _next(rng: random.Random) -> Task:
    return Task("Now in German please", ((_debug(rng).text, "You divide by zero."),))


KINDS = (
    TaskKind("hello", SMALL, 10, (20, 100), _hello),
    TaskKind("question", SMALL, 18, (80, 300), _question),
    TaskKind("fix", SMALL, 6, (40, 100), _fix),
    TaskKind("summary", SMALL, 6, (60, 120), _short_summary),
    TaskKind("translate", SMALL, 6, (30, 80), _translate),
    TaskKind("label", SMALL, 6, (8, 20), _label),
    TaskKind("weather", SMALL, 6, (20, 60), _weather),
    TaskKind("trap", SMALL, 8, (60, 200), _trap),
    TaskKind("news", SMALL, 8, (80, 200), _news),
    TaskKind("fields", SMALL, 6, (20, 50), _fields),
    TaskKind("debug", LARGE, 5, (200, 400), _debug),
    TaskKind("write", LARGE, 4, (200, 500), _write),
    TaskKind("edit", LARGE, 2, (200, 400), _edit),
    TaskKind("long", LARGE, 2, (300, 500), _long),
    TaskKind("reason", LARGE, 3, (200, 500), _reason),
    TaskKind("several", LARGE, 2, (200, 500), _several),
    TaskKind("choose", LARGE, 1, (300, 600), _choose),
    TaskKind("next", LARGE, 1, (100, 300), _next),
)


def tuning(count: int, seed: int) -> list[LabelledPrompt]:
    """Return prompts."""
    return draw(KINDS, _SYSTEMS, count, seed)
