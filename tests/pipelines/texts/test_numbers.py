"""Numbers are compared exactly, in both directions, in the notations of several languages."""

from __future__ import annotations

import random
import re
import time

import pytest

from tt.pipelines.texts.numbers import find_numbers, has_same_numbers, replace_wrong_number


def values(text):
    return [sorted(number.values) for number in find_numbers(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,250.00", [["1250"]]),
        ("1\u202f250,5", [["1250.5"]]),
        ("1'250", [["1250"]]),
        ("2.500", [["2.5", "2500"]]),
        ("2024-11-22", [["2024"], ["11"], ["22"]]),
        ("5 50 55", [["5"], ["50"], ["55"]]),
        ("007", [["7"]]),
        ("٢٥", [["25"]]),
        ("⟦1⟧ and 5", [["5"]]),
        ("no figure", []),
    ],
)
def test_notations(text, expected):
    assert values(text) == expected


SAME = [
    ("It costs 1,250.50 euros.", "Es kostet 1.250,5 Euro."),
    ("a man wears number 7 .", "ein mann trägt nummer 7 ."),
    ("2 dogs", "Zwei Hunde"),
    ("on 11/22/2024", "el 22 de noviembre de 2024"),
    ("at 3:30 pm", "um 15:30 Uhr"),
    ("2 million people", "2.000.000 Menschen"),
    ("debts of 111 billion crowns", "111 Milliarden Kronen Schulden"),
    ("5 to 10 million", "5.000.000 bis 10.000.000"),
    ("from 50,000 to 100,000 euros", "50-100.000 Euro"),
    ("between 1985 and 1987", "1985-87"),
    ("at 6:30", "um sechs Uhr dreißig"),
    ("20 m² of space", "20 m2 Fläche"),
    ("28.8.09", "28. August 2009"),
    ("the season 1999-2000", "die Saison 1999-00"),
    ("£360 million", "360 £ Millionen"),
    ("£2bn a year", "zwei Mrd. £ pro Jahr"),
    ("It takes 30 minutes.", "Es dauert eine halbe Stunde."),
    ("80, 000 crowns", "80000 Kronen"),
    ("the 1960s", "die 60er Jahre"),
    ("in the 1980s", "in den achtziger Jahren"),
    ("a 20-year sentence", "eine zwanzigjährige Haft"),
    ("Fifty-five percent", "55 Prozent"),
    ("60 milliards euros", "60 Milliarden Euro"),
    ("for nearly 10 years", "seit fast einem Jahrzehnt"),
]
OTHER = [
    ("a man with number 480 .", "ein mann mit nummer 488 ."),
    ("a man with number 50 .", "ein mann mit nummer 5 5 55 ."),
    ("a man with number 2500 .", "ein mann mit nummer 25 ."),
    ("a man wears number 7 .", "ein mann trägt nummer 14 ."),
    ("It costs 3.50.", "Es kostet 3,60."),
    ("in 1990 and 1991", "in 1990"),
    ("worth $18 billion", "im Wert von 18 Billionen Dollar"),
    ("40 thousand men", "4000 Soldaten"),
    ("I have 1 dog and 5 cats.", "Ich habe 6 Katzen."),
    ("on 11/22/2024", "am 22.12.2024"),
    ("for 1,850 euros", "für 50 Euro"),
    ("in 1988", "im Jahr 1888"),
    ("20 million people", "2020 Menschen"),
    ("on 11/22/24", "am 22.11.1824"),
    ("It cost 50 million in 1990.", "Es kostete 50 Mio."),
    ("He is here.", "Er ist hier 5."),
    ("in 2017", "im Jahr 017"),
    ("10 million euros, not more", "0 Millionen Euro"),
    ("19 dogs", "1919 Hunde"),
    ("at least twenty-two men", "mindestens 23 Männer"),
    ("in F1", "in einer F"),
    ("Rate: 1%", "eine Rate von %"),
    ("the first of 1 million", "der erste von  Mio."),
    ("1,000 CO2", "1.000 CO"),
]
CHINESE = [
    ("200亿美元", "$20 billion", True),
    ("300至400亿美元", "$30-40 billion", True),
    ("200亿美元", "$2 billion", False),
    ("第12页", "page twelve", True),
    ("第十二页", "page 12", True),
    ("三百二十五人", "326 people", False),
    ("7月30日", "July 30", True),
]


@pytest.mark.parametrize(("source", "text"), SAME)
def test_the_same_figures(source, text):
    languages = ("en", "de")
    assert has_same_numbers(text, source=source, languages=languages)
    assert has_same_numbers(text, source=source, languages=("en", ""))


@pytest.mark.parametrize(("source", "text"), OTHER)
def test_other_figures(source, text):
    languages = ("en", "de")
    assert not has_same_numbers(text, source=source, languages=languages)


@pytest.mark.parametrize(("source", "text", "is_same"), CHINESE)
def test_chinese_magnitudes(source, text, is_same):
    languages = ("zh", "en")
    assert has_same_numbers(text, source=source, languages=languages) == is_same


def test_repaired_figures_have_ascii_digits():
    source = "价格是４８０元"
    assert replace_wrong_number("The price is 488.", source=source) == "The price is 480."


@pytest.mark.parametrize("pump", ["1 ", "1,000 ", "1 million ", "5 pm ", "½ 1 ", "一"])
def test_time_grows_in_proportion(pump):
    seconds = []
    for length in (5_000, 50_000):
        source = pump * (length // len(pump))
        start = time.process_time()
        has_same_numbers(f"half x {source[length // 2 :]}", source=source, languages=("en", "de"))
        seconds.append(time.process_time() - start)
    assert seconds[1] < 40 * seconds[0] + 0.2


def planted(text, chance):
    """Change, drop, double or add one digit of a text."""
    place = chance.choice([found.start() for found in re.finditer(r"\d", text)])
    digit = text[place]
    changed = chance.choice([d for d in "123456789" if d != digit])
    return (
        text[:place] + chance.choice([changed, "", digit * 2, digit + changed]) + text[place + 1 :]
    )


def test_planted_errors_are_found():
    chance = random.Random(3)
    found = count = 0
    for _ in range(500):
        number = chance.choice([chance.randint(13, 99), chance.randint(100, 9999)])
        text = f"Es sind {number} Meter."
        damaged = planted(text, chance)
        if damaged == text or values(damaged) == values(text):
            continue
        count += 1
        source = f"It is {number} meters."
        languages = ("en", "de")
        found += not has_same_numbers(damaged, source=source, languages=languages)
    assert found >= 0.99 * count


def test_right_figures_of_an_unknown_language_are_not_replaced():
    source, text = "Since 2020, 20 million euros", "Sedan 2020, 20 miljoner euro"
    languages = ("en", "sv")
    assert replace_wrong_number(text, source=source, languages=languages) is None
