"""Twenty varied prompts: languages, code, digits, emoji, one token, long context."""

PROMPTS = [
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):",
    "1, 2, 3, 4,",
    "Die Hauptstadt von Deutschland ist",
    "El perro de San Roque",
    "import numpy as np\n\nx = np.",
    "Q: What is 7 times 8?\nA:",
    "The quick brown fox jumps over the lazy dog. " * 8,
    "Roses are red,\nviolets are blue,\n",
    "🙂 🙃 🚀",
    "東京は",
    "SELECT name, age FROM users WHERE",
    "In 1969, Neil Armstrong",
    "Dear Sir or Madam,\n\nI am writing to",
    "x",
    "The three laws of thermodynamics are: first,",
    "List five fruits:\n1.",
    '{"name": "Ada", "born": ',
    "Water boils at 100 degrees Celsius, which is " + "very hot " * 30,
]
