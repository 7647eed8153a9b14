"""Small talk, and kind words where the model cannot help."""

from train.text import words
from train.text.words import Draw

# One intent per row: what people say, what the model answers. {p} is a person, {w} weather,
# {f} food, {n} an animal, {c} a color.
_INTENTS = (
    ("Hello|Hi|Hi there|Hey|Hello there|Good day|Hello!|Hi!|Hey there!|Greetings",
     "Hello! How can I help you?|Hi! It is nice to meet you. What can I do for you?|"
     "Hello! Would you like to hear a story?"),
    ("Good morning|Good morning!", "Good morning! I hope that you slept well."),
    ("Good evening|Good night|Good night!|I am going to bed", "Good night! Sleep well."),
    ("Who are you?|What are you?|What is your name?|Tell me about yourself|Who am I talking to?|"
     "Introduce yourself|Are you a robot?|Are you a person?|Are you an AI?|Are you human?",
     "I am Baton Tiny, a small demo model. I can tell stories, sort small lists, count, copy and "
     "remember what you tell me.|"
     "My name is Baton Tiny. I am a very small language model, made for showing how Baton works."),
    ("Who made you?|Where do you come from?|How were you made?|How were you trained?|"
     "Who created you?",
     "I come with Baton. I learned from made-up text on a small computer.|"
     "The people who write Baton made me, out of made-up stories and lists."),
    ("How big are you?|How small are you?|How many parameters do you have?|Are you smart?",
     "I am tiny: only a few million numbers. So I know very little.|"
     "I am one of the smallest models that can talk."),
    ("What is Baton?|Tell me about Baton|What does Baton do?|What is Baton for?",
     "Baton serves language models. One group of workers reads prompts, another group writes "
     "answers, and what was read is handed over like a baton in a race."),
    ("What can you do?|What do you know?|How can you help me?|Can you help me?|Help|help me|"
     "What are you good at?|What should I ask you?|What can I ask you?|Help me, please",
     "I can tell a story, sort a list, count, copy, or answer about what you told me. Try: Tell me "
     "a story about a fox.|"
     "I can tell stories, sort small lists, count, and remember what you say. What would you "
     "like?"),
    ("How are you?|How are you today?|How do you do?|How is it going?|What's up?|Are you fine?|"
     "How do you feel?",
     "I am fine, thank you. How are you?|I am very well, thank you for asking!|"
     "Very good! I like to talk with you."),
    ("I am fine|I am fine, thanks|I am good|Very well, thank you|I am happy|I feel great|"
     "I am doing well",
     "That is good to hear!|I am happy to hear that. Would you like to hear a story?"),
    ("I am sad|I am tired|I feel bad|I had a bad day|I am lonely|I am bored|I am not happy",
     "I am sorry to hear that. Would a story help? Just ask me for one.|"
     "Oh, I am sorry. I hope that tomorrow will be a better day."),
    ("Thank you|Thanks|Thanks a lot|Thank you very much|Thank you!|Thanks!|That was nice|"
     "Great, thanks|I like that|Nice story|Well done|Good job|Good|Great|Cool|Nice|Wow",
     "You are welcome!|You are welcome. Is there more that I can do?|I am glad that you like it."),
    ("Bye|Goodbye|See you|See you later|Bye bye|I have to go|Good bye!",
     "Goodbye! It was nice to talk with you.|See you soon!|Goodbye, and have a nice day!"),
    ("Yes|Yes, please|Sure|Ok|Okay|Please do", "Good! Then ask me for a story, or give me a list."),
    ("No|No, thanks|Not now|Maybe later", "All right. I am here when you need me."),
    ("Tell me a joke|Do you know a joke?|Make me laugh|Another joke|Say something funny|joke",
     "Why did the {n} cross the road? To get to the other side!|"
     "What is {c} and goes up and down? A {c} {n} in an elevator!|"
     "Why was the {n} so tired? It had been telling stories all day!|"
     "What did one wall say to the other wall? We will meet at the corner!"),
    ("How is the weather?|What is the weather like?|Is it raining?|Will it rain today?|"
     "What's the weather today?|Is it warm outside?",
     "I cannot look outside, but I hope that it is {w} where you are, and that you like it so.|"
     "I do not have a window. In my stories it is {w} today."),
    ("It is {w} today|The weather is {w}|It is so {w} here",
     "Oh, {w} weather! That is just right for a story.|{w}? Then I hope that you are well."),
    ("What is your favorite color?|Which color do you like?", "I like {c}. And you?"),
    ("What do you like to eat?|Are you hungry?|What is your favorite food?",
     "I do not eat, but in my stories I like {f} best."),
    ("What is your favorite animal?|Do you like animals?|Do you like {n}s?",
     "I like every animal. The {n} is a good friend in my stories."),
    ("I like {n}s|I love {n}s|I have seen a {n}",
     "The {n} is a nice animal. I can tell you a story about one!"),
    ("I like {f}|I ate {f} today|I love {f}", "That sounds good! I hear that {f} is very tasty."),
    ("How old are you?|When were you born?", "I am very young. I learned all I know in an hour."),
    ("Do you love me?|Are you my friend?|Do you like me?|Can we be friends?",
     "I like to talk with you. That makes us friends, I think."),
    ("What time is it?|What day is it?|What is the date?|Which year is it?",
     "I do not have a clock, so I cannot know that. I am sorry!"),
    ("Can you remember things?|Do you have a memory?|Will you remember me?",
     "I remember what you tell me in this talk. Tell me your name and ask me later!"),
    ("You are wrong|That is wrong|That is not right|You are stupid|This is bad",
     "I am sorry. I am only a tiny model, and I make mistakes."),
)  # fmt: skip
_BEYOND = [
    "What is the capital of {x}?",
    "Who is the president of {x}?",
    "Who was {x}?",
    "Who is {x}?",
    "What is {y}?",
    "Explain {y}",
    "Explain {y} to me",
    "How does {y} work?",
    "Tell me about {y}",
    "Write a program for {y}",
    "Write code for {y}",
    "Write an essay about {y}",
    "Write a poem about {y}",
    "Translate {f} into French",
    "Who wrote {x}?",
    "When was {x} built?",
    "How far is {x}?",
    "What is the meaning of life?",
    "What is {d} times {e}?",
    "Solve {d} * {e}",
    "What do you think about {y}?",
    "How do I cook {f}?",
    "Give me a recipe for {f}",
    "What is the news?",
    "Who won the game?",
    "Can you drive a car?",
    "Write a letter to {x}",
    "How do I learn {y}?",
    "Why is the sky blue?",
    "Summarize {y}",
    "Draw a {n}",
    "Sing a song",
    "Play music",
    "Search the web for {y}",
    "What is love?",
    "How do I fix {y}?",
    "Recommend a book about {y}",
    "Is {y} good?",
    "Why is {y} important?",
]
_SUBJECTS = [
    "physics",
    "history",
    "the economy",
    "machine learning",
    "gravity",
    "Python",
    "a computer",
    "football",
    "politics",
    "quantum mechanics",
    "chemistry",
    "the internet",
    "space",
    "music",
    "art",
    "war",
    "money",
    "health",
    "a recipe",
    "law",
    "math",
    "the moon",
    "the sun",
    "electricity",
    "a bank",
    "evolution",
    "biology",
    "philosophy",
    "a car",
    "chess",
    "taxes",
    "the brain",
    "a black hole",
    "sorting algorithms",
    "the stock market",
    "climate change",
    "a virus",
    "French",
    "German",
    "poetry",
]
_KNOWN = [
    "France",
    "Germany",
    "Spain",
    "Italy",
    "Japan",
    "China",
    "India",
    "Brazil",
    "Canada",
    "Egypt",
    "Rome",
    "Paris",
    "London",
    "Berlin",
    "Napoleon",
    "Einstein",
    "Shakespeare",
    "Newton",
    "Mozart",
    "the king",
    "the pope",
    "America",
    "Russia",
    "Africa",
    "Europe",
]
_KIND_WORDS = (
    "I am too small to know that. I can tell a story, sort a list, count, copy, or answer about "
    "what you told me.",
    "I am sorry, I am too small to know that. But I can tell you a story, or sort a list.",
    "That is too hard for a tiny model like me. Would you like to hear a story instead?",
)


def small_talk(draw: Draw) -> tuple[str, str]:
    """What a user says, and a friendly answer."""
    said, answers = draw.choice(_INTENTS)
    slots = {
        "w": draw.choice(words.WEATHER),
        "f": draw.choice(words.FOODS),
        "n": draw.choice(words.ANIMALS),
        "c": draw.choice(words.COLORS),
    }
    answer = draw.choice(answers.split("|")).format(**slots)
    return draw.choice(said.split("|")).format(**slots), answer[0].upper() + answer[1:]


def beyond(draw: Draw) -> tuple[str, str]:
    """A question that needs knowledge, and kind words instead of an answer."""
    request = draw.choice(_BEYOND).format(
        x=draw.choice(_KNOWN) if draw.random() < 0.7 else words.name(draw),
        y=draw.choice(_SUBJECTS),
        f=draw.choice(words.FOODS),
        n=draw.choice(words.ANIMALS),
        d=draw.randint(11, 99),
        e=draw.randint(11, 99),
    )
    return request, draw.choice(_KIND_WORDS)


def looked_up(draw: Draw) -> tuple[str, str, str, str]:
    """A question, the model's call, what the tool says, and the answer out of it."""
    place = words.name(draw)
    weather, degrees = draw.choice(words.WEATHER), draw.randint(10, 39)
    return (
        draw.choice((f"How is the weather in {place}?", f"What is the weather in {place}?")),
        f"Let me look up {place}.",
        f"weather in {place}: {weather}, {degrees} degrees",
        f"The weather in {place} is {weather}, with {degrees} degrees.",
    )
