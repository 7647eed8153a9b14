"""Prompts that the rules were not tuned on: real sources and documentation of Python's library, and
tasks of an office, a shop and an engineering team, in four languages.

Written before the rules. Do not change the rules by what it shows: they would then fit it.
"""

import inspect
import random
import textwrap
from functools import cache
from importlib import import_module

from bench.auto.prompts import LARGE, SMALL, LabelledPrompt, Task, TaskKind, draw, schema, tool

_MODULES = (
    *("bisect", "calendar", "colorsys", "csv", "fnmatch", "glob", "heapq", "locale", "mimetypes"),
    *("pprint", "quopri", "random", "sched", "shlex", "shutil", "statistics", "string", "textwrap"),
)
_HOUSE = (
    "Be polite, keep to the subject of the company, never promise dates of delivery that are not "
    "in the order system, and refer legal matters to a human colleague. Do not repeat personal "
    "data. "
)
_SYSTEMS = (
    "You are the assistant of Hofmann Logistics. " + _HOUSE * 8,
    "Answer as briefly as the question permits. If you are unsure, say so. " + _HOUSE * 4,
    "You help the employees of an engineering company with their daily work: letters, lists, "
    "calculations, programs and documents. Use metric units and the 24-hour clock. " + _HOUSE * 6,
    "You are a helpful assistant.",
)
_PLACES = ("Lisbon", "Turin", "Aarhus", "Kraków", "Valparaíso", "Nagoya", "Tampere", "Galway")
_NAMES = ("Inés", "Bruno", "Akiko", "Marta", "Oluwaseun", "Piotr", "Chiara", "Dermot")
_THINGS = ("a lathe", "the espresso machine", "our warehouse", "the quarterly plan", "my visa")


@cache
def _sources() -> list[str]:
    """Return functions of Python's library, of a size that people paste."""
    found = []
    for name in _MODULES:
        module = import_module(name)
        for _, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == name:
                source = textwrap.dedent(inspect.getsource(function))
                if 250 < len(source) < 2500:
                    found.append(source)
    return found


@cache
def _paragraphs() -> list[str]:
    """Return paragraphs of the library's documentation."""
    texts = [inspect.getdoc(import_module(name)) or "" for name in (*_MODULES, "argparse", "re")]
    parts = [part.replace("\n", " ") for text in texts for part in text.split("\n\n")]
    return [part for part in parts if 80 < len(part) < 700 and ">>>" not in part]


@cache
def _documents() -> list[str]:
    """Return long texts: the documentation of whole modules and classes."""
    texts = []
    for name in (*_MODULES, "argparse", "difflib", "decimal", "logging", "optparse", "threading"):
        module = import_module(name)
        parts = [inspect.getdoc(module) or ""]
        parts += [inspect.getdoc(one) or "" for _, one in inspect.getmembers(module)]
        texts.append("\n\n".join(part for part in parts if ">>>" not in part)[:14_000])
    return [text for text in texts if len(text) > 7_000]


def _chat(rng: random.Random) -> Task:
    return Task(
        rng.choice(
            (
                "Buongiorno, come stai oggi?",
                "¡Hola! ¿Qué tal el día?",
                "こんにちは、お元気ですか？",
                "hey, quick one: can you cheer me up before a meeting",
                f"Good evening, this is {rng.choice(_NAMES)} again. Thanks for earlier!",
                "Ciao! Mi racconti una barzelletta?",
                "thx, that is all for today",
            )
        )
    )


def _fact(rng: random.Random) -> Task:
    place = rng.choice(_PLACES)
    return Task(
        rng.choice(
            (
                f"Which river flows through {place}?",
                f"what's the postal code of the town hall in {place}",
                f"¿En qué país está {place}?",
                f"In quale regione si trova {place}?",
                f"{place}の人口はどのくらいですか？",
                "How long can a python get, and is it venomous?",
                "What is the boiling point of acetone?",
                "Who painted Las Meninas?",
                "What does 'idempotent' mean?",
                f"Is there a direct train from {place} to {rng.choice(_PLACES)}?",
            )
        )
    )


def _rewrite(rng: random.Random) -> Task:
    text = rng.choice(_paragraphs()).split(". ")[0]
    ask = rng.choice(("Correct the grammar:", "Say this more kindly:", "Shorten:", "Riscrivi:"))
    return Task(f"{ask} {text}.")


def _summary(rng: random.Random) -> Task:
    text = " ".join(rng.sample(_paragraphs(), 2))
    return Task(
        f"{rng.choice(('Summarize in one line', 'TL;DR please', 'Resume esto'))}:\n\n{text}"
    )


def _translation(rng: random.Random) -> Task:
    language = rng.choice(("Danish", "Spanish", "Polish", "Japanese"))
    return Task(f"How do you say '{rng.choice(_THINGS)} is out of order' in {language}?")


def _classes(rng: random.Random) -> Task:
    review = rng.choice(
        (
            "Arrived two days late and the box was crushed, but the lamp works.",
            "Five stars! My mother cried when she opened it.",
            "No contestan al teléfono. No compren aquí.",
        )
    )
    form = schema(mood={"enum": ["good", "bad", "mixed"]})
    return Task(f"Which mood does this review have?\n{review}", fields={"response_format": form})


def _extraction(rng: random.Random) -> Task:
    filler = " ".join(rng.sample(_paragraphs(), rng.randint(0, 3)))
    mail = (
        f"Dear team,\n{rng.choice(_NAMES)} asked me to pass on that invoice "
        f"{rng.randint(1000, 9999)} over {rng.randint(20, 900)} euros is due on "
        f"{rng.randint(1, 28)} March.\n{filler}\nBest"
    )
    form = schema(number={"type": "string"}, due={"type": "string"}, euros={"type": "number"})
    return Task(f"Fill in the fields from this mail:\n\n{mail}", fields={"response_format": form})


def _lookup(rng: random.Random) -> Task:
    tools = [tool("find_order", "Looks an order up.", "number")]
    text = f"where is my parcel? the number is {rng.randint(10**6, 10**7)}"
    return Task(text, fields={"tools": tools})


def _units(rng: random.Random) -> Task:
    return Task(f"{rng.randint(2, 90)} inches in cm?")


def _letter(rng: random.Random) -> Task:
    return Task(
        f"Write three friendly sentences to {rng.choice(_NAMES)}: {rng.choice(_THINGS)} will be "
        "ready on Thursday."
    )


def _small_talk(rng: random.Random) -> Task:
    first = _fact(rng).text
    return Task(rng.choice(("and in winter?", "thanks!", "why?")), ((first, "That depends."),))


def _fault(rng: random.Random) -> Task:
    source = rng.choice(_sources())
    ask = rng.choice(
        (
            "Since the upgrade this gives wrong results for empty input. Where is the mistake?",
            "¿Por qué falla esta función con una lista muy larga?",
            "Find the race in here and fix it.",
            "Questa funzione è lenta. Come la miglioro?",
        )
    )
    body = f"```python\n{source}```" if rng.random() < 0.5 else source
    return Task(f"{ask}\n\n{body}")


def _snippet(rng: random.Random) -> Task:
    code = rng.choice(
        (
            "for i := 0; i <= len(xs); i++ {\n\tsum += xs[i]\n}\nreturn sum",
            "impl Iterator for Walk {\n    type Item = u32;\n"
            "    fn next(&mut self) -> Option<u32> {\n"
            "        self.at += 1;\n        Some(self.at)\n    }\n}",
            "#!/bin/bash\nset -e\nfor f in *.csv; do\n  sort -u $f > $f\ndone",
            "std::vector<int> v;\nfor (auto it = v.begin(); it != v.end(); ++it)\n  v.erase(it);",
            "export const useCart = () => {\n  const [items, set] = useState([]);\n"
            "  return items;\n};",
            "apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 0\n  selector: {}",
        )
    )
    return Task(
        f"{rng.choice(('Review this:', 'Why does this not work?', 'Make it safe.'))}\n{code}"
    )


def _program(rng: random.Random) -> Task:
    language = rng.choice(("Go", "Rust", "Bash", "C++", "Kotlin", "TypeScript"))
    return Task(
        rng.choice(
            (
                f"Write a {language} program that reads a log and prints the ten slowest requests.",
                f"I need a {language} function which merges overlapping intervals, with tests.",
                f"Implement a rate limiter with a token bucket in {language}.",
                f"Puoi scrivere in {language} un parser per file INI?",
                f"Port our nightly backup to {language}; it must resume after a power cut.",
            )
        )
    )


def _agent(rng: random.Random) -> Task:
    tools = [
        tool("read_file", "Reads a file.", "path"),
        tool("write_file", "Writes a file.", "path", "text"),
        tool("run", "Runs a command.", "command"),
    ]
    source = rng.choice(_sources())
    return Task(
        f"The tests of this function fail on Windows. Repair it and run them.\n\n{source}",
        fields={"tools": tools},
    )


def _document(rng: random.Random) -> Task:
    ask = rng.choice(
        (
            "List every promise that this manual makes, and where two of them disagree.",
            "Escribe un informe para la dirección sobre los riesgos de este texto.",
            "Draw up a training plan for new colleagues from this.",
        )
    )
    return Task(f"{rng.choice(_documents())}\n\n{ask}")


def _proof(rng: random.Random) -> Task:
    n = rng.randint(3, 9)
    return Task(
        rng.choice(
            (
                f"Prove that the sum of {n} consecutive odd numbers is divisible by {n}.",
                f"In how many ways can {n + 4} people sit at two round tables? Derive the formula.",
                f"Two pumps fill a tank in {n} and {n + 3} hours, a leak empties it in {3 * n}. "
                "After one hour the first pump fails. When is the tank full? Show each step.",
                f"Dimostra che la radice di {n * n + 1} è irrazionale.",
            )
        )
    )


def _many(rng: random.Random) -> Task:
    place = rng.choice(_PLACES)
    return Task(
        f"We are moving {rng.choice(_THINGS)} to {place}. Which permits are needed? Who signs "
        "them? What does it cost compared with last year? Which insurance covers the transport? "
        "And what happens if customs holds it for a month?"
    )


def _design(rng: random.Random) -> Task:
    left, right = rng.sample(("Kafka", "Postgres", "Redis", "S3", "SQLite", "etcd"), 2)
    return Task(
        rng.choice(
            (
                f"Compare {left} and {right} as the store of our sensor data: {rng.randint(2, 9)} "
                "million readings a day, seven years, two people to run it. Recommend one, with "
                "the trade-offs.",
                f"Design the migration from {left} to {right} without downtime.",
            )
        )
    )


def _goes_on(rng: random.Random) -> Task:
    first = _fault(rng).text
    return Task(
        rng.choice(("and now without recursion", "still the same error", "add types please")),
        ((first, "The mistake is in the loop."),),
    )


KINDS = (
    TaskKind("chat", SMALL, 10, (60, 240), _chat),
    TaskKind("fact", SMALL, 16, (80, 320), _fact),
    TaskKind("rewrite", SMALL, 9, (60, 200), _rewrite),
    TaskKind("summary", SMALL, 7, (80, 200), _summary),
    TaskKind("translation", SMALL, 6, (60, 160), _translation),
    TaskKind("classes", SMALL, 7, (8, 20), _classes),
    TaskKind("extraction", SMALL, 8, (30, 60), _extraction),
    TaskKind("lookup", SMALL, 5, (20, 60), _lookup),
    TaskKind("units", SMALL, 4, (20, 80), _units),
    TaskKind("letter", SMALL, 4, (120, 240), _letter),
    TaskKind("small talk", SMALL, 4, (80, 260), _small_talk),
    TaskKind("fault", LARGE, 4, (200, 500), _fault),
    TaskKind("snippet", LARGE, 3, (150, 450), _snippet),
    TaskKind("program", LARGE, 3, (250, 600), _program),
    TaskKind("agent", LARGE, 2, (100, 400), _agent),
    TaskKind("document", LARGE, 1, (300, 600), _document),
    TaskKind("proof", LARGE, 2, (250, 500), _proof),
    TaskKind("questions", LARGE, 2, (250, 500), _many),
    TaskKind("design", LARGE, 2, (300, 600), _design),
    TaskKind("goes on", LARGE, 1, (150, 400), _goes_on),
)


def held_out(count: int, seed: int) -> list[LabelledPrompt]:
    """Return prompts."""
    return draw(KINDS, _SYSTEMS, count, seed)
