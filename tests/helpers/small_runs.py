"""Lines made of a handful of words, a small grammar, and a recipe for a model of one layer."""

import random

SMALL = """
[tokenizer]
vocab_size = 90
[model]
hidden_size = 16
num_layers = 1
num_heads = 2
max_length = 24
[training]
steps = 6
batch_size = 16
precision = "fp32"
device = "cpu"
"""
GRAMMAR = """
[zoo.latents]
animal = ["lion", "zebra", "bear"]
[zoo.words]
food = ["meat", "grass", "honey"]
[zoo.steps.first]
sentences = ["the {animal} eats {food} .", "here is a {animal} ."]
[zoo.steps.second]
probability = 0.5
sentences = ["it is a {animal} ."]
"""


def lines(number=300, seed=0):
    rng = random.Random(seed)
    names = "anna ben clara david emma felix".split()
    fruits = "apples bread cheese dates eggs figs".split()
    for place in range(number):
        who, day = rng.randrange(6), rng.choice(["day", "week", "year"])
        yield f"{names[who]} likes {fruits[who]} and eats {place} {fruits[who]} every {day} ."
