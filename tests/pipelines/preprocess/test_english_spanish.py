"""The embedded corpus: its grammar, its split, and the baseline that models must beat."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
import sacrebleu
from english_spanish import baseline, choices, corpus, grammar, lexicon, spans
from english_spanish.lexicon import NOUNS, VERBS, Words
from hypothesis import given, settings
from hypothesis import strategies as st

from tt.model.text.spans import PLACEHOLDERS, Protection
from tt.pipelines.preprocess import ready_made as embedded
from tt.pipelines.preprocess.placeholders import replace_shared_spans

ADJECTIVES = {adjective.en: adjective for adjective in lexicon.ADJECTIVES}
MONTHS = {month.en: month for month in lexicon.MONTHS}

# sha256 over both parts, training first, of "source TAB target NEWLINE" per pair in UTF-8. It
# changes with every change of the grammar or the lexicon. Scores of models are then no longer
# comparable.
CORPUS_SHA256 = "616329758827b7e85fd3d29f5690a489f180077d93b51b8f12426838fd0df65d"
# The sha256 of the held-out part, on which models are scored.
HELD_OUT_SHA256 = "e40b8f032003c2a8f956f84e39c43b98f750b16d14c13fc122cbe19edc9b6e27"


def plain_pairs():
    """Return the training pairs without spans."""
    return corpus.train_pairs()[: corpus.TRAIN_PAIRS - corpus.SPAN_PAIRS]


def replaced_pairs():
    """Return the training pairs with spans, after their replacement by placeholders."""
    pairs = corpus.train_pairs()[corpus.TRAIN_PAIRS - corpus.SPAN_PAIRS :]
    return [
        replace_shared_spans(pair.source, pair.target, protection=Protection()) for pair in pairs
    ]


def corpus_sha256(pairs=None):
    pairs = pairs or corpus.train_pairs() + corpus.held_out_pairs()
    lines = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
    return hashlib.sha256(lines.encode()).hexdigest()


def word_forms(sentences):
    """Count the words without regard to case."""
    return Counter(re.findall(r"[\w'-]+", " ".join(sentences).lower()))


# ------------------------------------------------------------------------------------ the two parts


def test_sizes_and_distinct_sources():
    train, held_out = corpus.train_pairs(), corpus.held_out_pairs()
    assert (
        (len(train), len(held_out)) == (corpus.TRAIN_PAIRS, corpus.HELD_OUT_PAIRS) == (28_800, 400)
    )
    assert len({pair.source for pair in train + held_out}) == 29_200
    assert (corpus.SOURCE_LANGUAGE, corpus.TARGET_LANGUAGE) == ("en", "es")


def test_embedded_corpus_is_generated_by_the_grammar():
    assert embedded.train_pairs() == tuple((p.source, p.target) for p in corpus.train_pairs())
    assert embedded.held_out_pairs() == tuple(
        (p.source, p.target, baseline.translate_word_for_word(p.source))
        for p in corpus.held_out_pairs()
    )


def test_corpus_is_the_same_on_every_machine():
    assert corpus_sha256() == CORPUS_SHA256
    assert corpus_sha256(corpus.held_out_pairs()) == HELD_OUT_SHA256


@pytest.mark.parametrize("hash_seed", ["1", "4294967295"])
def test_corpus_does_not_depend_on_string_hashing(hash_seed):
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    run = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == CORPUS_SHA256


def test_callers_cannot_change_the_corpus():
    corpus.held_out_pairs().clear()
    assert len(corpus.held_out_pairs()) == corpus.HELD_OUT_PAIRS


def test_no_held_out_triple_is_in_training():
    trained = {triple for pair in corpus.train_pairs() for triple in pair.triples}
    held_out = {triple for pair in corpus.held_out_pairs() for triple in pair.triples}
    assert not trained & held_out
    assert all(pair.triples for pair in corpus.train_pairs() + corpus.held_out_pairs())
    assert len(trained) > 5_000
    assert len(held_out) > 250
    assert any(len(pair.triples) == 2 for pair in corpus.held_out_pairs())


def test_every_held_out_word_form_is_in_training():
    train, held_out = corpus.train_pairs(), corpus.held_out_pairs()
    for side in ("source", "target"):
        trained = word_forms([getattr(pair, side) for pair in train])
        assert set(word_forms([getattr(pair, side) for pair in held_out])) <= set(trained)


def test_both_parts_use_every_template():
    """Templates are recognized by their own words and punctuation."""
    for pairs, least in ((corpus.train_pairs(), 200), (corpus.held_out_pairs(), 3)):
        sources = [pair.source for pair in pairs]
        for words in (
            "Please ", "Where ", "When ", "Why ", "Who ", "How many ", " because ", ", but ",
            " who ", " that ", " than ", " years old", " like", "There ", " can", " now.",
        ):  # fmt: skip
            assert sum(words in source for source in sources) >= least, words


def test_sentences_are_well_formed():
    for pair in plain_pairs() + corpus.held_out_pairs():
        assert re.fullmatch(r"[A-Z][\w ,'-]*[.?]", pair.source), pair
        assert re.fullmatch(r"¿?[A-ZÁÉÍÓÚ][\w ,]*[.?]", pair.target), pair
        assert pair.target.startswith("¿") == pair.source.endswith("?") == ("?" in pair.target)
        assert not re.search(r"  |\b(A|a|De|de) el\b| [,.?]", pair.source + pair.target), pair
        assert 3 <= len(pair.source.split()) <= 20, pair


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_source_determines_the_target(seed):
    draw, seen = choices.Draw(seed), {pair.source: pair for pair in corpus.train_pairs()}
    for template in corpus.TEMPLATES:
        for _ in range(10):
            pair = template.fill(template.choose(draw))
            assert seen.setdefault(pair.source, pair) == pair


# -------------------------------------------------------------------------------------------- spans


def test_every_span_becomes_a_placeholder_that_occurs_once_per_side():
    found = replaced_pairs()
    assert len({pair.source for pair in found}) == len(found) == 4800  # no duplicates
    for source, target, count in found:
        expected = [*PLACEHOLDERS[:count]]
        assert count
        assert re.findall("⟦.⟧", source) == expected
        assert sorted(re.findall("⟦.⟧", target)) == expected
        assert not re.search(
            r"[][<>{}$%`@#&\d]",
            re.sub("⟦.⟧|[12]?[0-9](st|nd|rd|th)?|20[0-4][0-9]|[[]⟦.⟧]", "", source),
        )
    counts = Counter(pair.placeholders for pair in found)
    assert sorted(counts) == [1, 2, 3]
    assert min(counts.values()) > 500


def test_corpus_has_spans_of_every_kind():
    sources = " ".join(pair.source for pair in corpus.train_pairs()[-corpus.SPAN_PAIRS :])
    tables = (
        spans._VARIABLES, spans._THINGS, spans._ADDRESSES,
        spans._BEFORE, spans._BEHIND, *spans._TAGS,
    )  # fmt: skip
    for span in {span for table in tables for span in table}:
        assert sources.count(span) >= 2, span
        assert [found.replacement for found in Protection().find(span)] == [span]


def test_sentences_with_spans_are_well_formed():
    for source, target, _ in replaced_pairs():
        plain_source, plain_target = (
            " ".join(re.sub(r"[([]?⟦.⟧[])]?:?( –)?", "", text).split()) for text in (source, target)
        )
        assert re.fullmatch(r"[\w ,'-]*[.?]", plain_source), source
        assert re.fullmatch(r"¿?[\w ,]*[.?]", plain_target), target
        assert ("¿" in target) == source.endswith("?") == target.endswith("?")
        assert not re.search(r"\b(a|de) (⟦.⟧)?el\b", target), target
        assert re.match(r"(⟦1⟧:? )?([A-Z]|⟦[12]⟧ )", source), source


def test_new_pairs_with_spans_belong_to_the_chosen_part():
    for held_out in (False, True):
        pairs = corpus.span_pairs(count=60, seed=7, held_out=held_out)
        assert {corpus.is_held_out(t) for pair in pairs for t in pair.triples} == {held_out}
        assert pairs == corpus.span_pairs(count=60, seed=7, held_out=held_out)
        assert pairs != corpus.span_pairs(count=60, seed=8, held_out=held_out)


def test_random_draws_are_in_range():
    draw = choices.Draw(5)
    assert {draw.number(2, 4) for _ in range(200)} == {2, 3, 4}
    assert {draw.pick("ab") for _ in range(200)} == {"a", "b"}


# --------------------------------------------------------------------------------------- baseline


def test_word_for_word_baseline_stays_below_40_bleu():
    pairs = corpus.held_out_pairs()
    translations = [baseline.translate_word_for_word(pair.source) for pair in pairs]
    score = sacrebleu.corpus_bleu(translations, [[pair.target for pair in pairs]]).score
    print(f"BLEU of the word-for-word lexicon: {score:.1f}")
    assert 5 < score < 40


def test_baseline_knows_every_word():
    """The baseline translates every word, because copied words would make it too weak."""
    words = word_forms([pair.source for pair in plain_pairs()])
    unknown = {word for word in words if word not in baseline._dictionary()}
    assert all(word[0].isdigit() for word in unknown)  # "2024", "3rd"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("The women bought red apples.", "El mujer comprar rojo manzana."),
        ("Lucia doesn't like tea.", "Lucía no gustar té."),
        ("Who ran on March 3rd, 2024?", "Quién correr en marzo 3, 2024?"),
        ("He found thirty-one keys.", "Él encontrar treinta y un llave."),
        ("A zebra sings.", "Un zebra cantar."),
    ],
)
def test_translate_word_for_word(source, expected):
    assert baseline.translate_word_for_word(source) == expected


# ------------------------------------------------------------------------------------- inflection


@pytest.mark.parametrize(
    ("word", "suffix", "expected"),
    [
        ("close", "ing", "closing"), ("run", "ing", "running"), ("see", "ing", "seeing"),
        ("eat", "ing", "eating"), ("open", "ed", "opened"), ("visit", "ed", "visited"),
        ("big", "er", "bigger"), ("new", "er", "newer"), ("old", "er", "older"),
    ],
)  # fmt: skip
def test_add_suffix(word, suffix, expected):
    assert grammar.add_suffix(word=word, suffix=suffix) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("apple", "apples"), ("box", "boxes"), ("bus", "buses"), ("city", "cities"),
        ("key", "keys"), ("woman", "women"), ("man", "men"), ("actress", "actresses"),
        ("wash", "washes"), ("go", "goes"),
    ],
)  # fmt: skip
def test_add_s(word, expected):
    assert grammar.add_s(word) == expected


@pytest.mark.parametrize(
    ("verb", "tense", "person", "expected"),
    [
        ("go", "present", "3s", "goes"), ("go", "past", "3p", "went"),
        ("read", "past", "1s", "read"), ("wash", "present", "3p", "wash"),
        ("wash", "past", "2s", "washed"), ("close", "past", "3s", "closed"),
        ("sing", "future", "1p", "will sing"),
    ],
)  # fmt: skip
def test_english_verb(verb, tense, person, expected):
    assert grammar.english_verb(verb=VERBS[verb], tense=tense, person=person) == expected


def test_english_auxiliaries():
    be = [
        grammar.english_verb(verb=lexicon.SER, tense="past", person=person)
        for person in lexicon.PERSONS
    ]
    assert be == ["was", "were", "was", "were", "were"]
    has, can, want = (
        grammar.english_verb(verb=verb, tense="present", person="3s") for verb in lexicon.MODALS
    )
    assert (has, can, want) == ("has", "can", "wants")
    words = ["am", "is", "will", "does", "can", "were"]
    negated = ["am not", "isn't", "won't", "doesn't", "can't", "weren't"]
    assert [grammar.negate(word) for word in words] == negated
    assert grammar.comparative("tall") == "taller"
    assert grammar.comparative("expensive") == "more expensive"


@pytest.mark.parametrize(
    ("verb", "tense", "expected"),
    [
        ("buy", "present", "compro compras compra compramos compran"),
        ("buy", "past", "compré compraste compró compramos compraron"),
        ("buy", "future", "compraré comprarás comprará compraremos comprarán"),
        ("eat", "present", "como comes come comemos comen"),
        ("eat", "past", "comí comiste comió comimos comieron"),
        ("open", "present", "abro abres abre abrimos abren"),
        ("close", "present", "cierro cierras cierra cerramos cierran"),
        ("close", "past", "cerré cerraste cerró cerramos cerraron"),
        ("drive", "past", "conduje condujiste condujo condujimos condujeron"),
        ("look", "past", "busqué buscaste buscó buscamos buscaron"),
        ("read", "past", "leí leíste leyó leímos leyeron"),
        ("sleep", "past", "dormí dormiste durmió dormimos durmieron"),
        ("give", "past", "di diste dio dimos dieron"),
        ("send", "present", "envío envías envía enviamos envían"),
        ("go", "present", "voy vas va vamos van"),
        ("go", "past", "fui fuiste fue fuimos fueron"),
        ("go", "future", "iré irás irá iremos irán"),
        ("return", "past", "volví volviste volvió volvimos volvieron"),
    ],
)
def test_conjugate(verb, tense, expected):
    forms = [
        grammar.conjugate(verb=VERBS[verb], tense=tense, person=person)
        for person in lexicon.PERSONS
    ]
    assert " ".join(forms) == expected


def test_every_irregular_verb_lists_a_form_for_each_person():
    for verb in (
        *VERBS.values(),
        *lexicon.MODALS,
        lexicon.SER,
        lexicon.ESTAR,
        lexicon.TENER,
        lexicon.HABER,
    ):
        for forms in (verb.present, verb.past):
            assert len(forms.split()) in (0, len(lexicon.PERSONS)), verb


def test_spanish_word_forms():
    gerunds = {"buy": "comprando", "write": "escribiendo", "read": "leyendo", "sleep": "durmiendo"}
    assert {verb: grammar.gerund(VERBS[verb]) for verb in gerunds} == gerunds
    plurals = {
        "manzana": "manzanas", "café": "cafés", "reloj": "relojes", "camión": "camiones",
        "autobús": "autobuses", "actriz": "actrices", "joven": "jóvenes", "azul": "azules",
        "feliz": "felices", "ciudad": "ciudades",
    }  # fmt: skip
    assert {word: grammar.spanish_plural(word) for word in plurals} == plurals


@pytest.mark.parametrize(
    ("adjective", "forms"),
    [
        ("rojo", "rojo roja rojos rojas"), ("grande", "grande grande grandes grandes"),
        ("feliz", "feliz feliz felices felices"), ("azul", "azul azul azules azules"),
        ("trabajador", "trabajador trabajadora trabajadores trabajadoras"),
    ],
)  # fmt: skip
def test_agree(adjective, forms):
    agreed = [
        grammar.agree(adjective=adjective, gender=gender, plural=plural)
        for plural in (False, True)
        for gender in ("m", "f")
    ]
    assert " ".join(agreed) == forms


@pytest.mark.parametrize(
    ("number", "en", "masculine", "feminine"),
    [
        (2, "two", "dos", "dos"),
        (16, "sixteen", "dieciséis", "dieciséis"),
        (20, "twenty", "veinte", "veinte"),
        (21, "twenty-one", "veintiún", "veintiuna"),
        (22, "twenty-two", "veintidós", "veintidós"),
        (30, "thirty", "treinta", "treinta"),
        (31, "thirty-one", "treinta y un", "treinta y una"),
        (99, "ninety-nine", "noventa y nueve", "noventa y nueve"),
    ],
)
def test_spell(number, en, masculine, feminine):
    assert grammar.spell(number=number, gender="m") == Words(en, masculine)
    assert grammar.spell(number=number, gender="f") == Words(en, feminine)


@pytest.mark.parametrize(
    ("day", "ordinal"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (23, "23rd")],
)
def test_date(day, ordinal):
    march = MONTHS["March"]
    expected = Words(f"on March {ordinal}, 2024", f"el {day} de marzo de 2024")
    assert grammar.date(day=day, month=march, year=2024) == expected
    assert grammar.date(day=day, month=march) == Words(f"on March {ordinal}", f"el {day} de marzo")


# ------------------------------------------------------------------------------ phrases, sentences


@pytest.mark.parametrize(
    ("noun", "options", "en", "es"),
    [
        ("car", {"determiner": lexicon.A, "adjective": "red"}, "a red car", "un coche rojo"),
        ("apple", {"determiner": lexicon.A}, "an apple", "una manzana"),
        ("door", {"determiner": lexicon.A, "adjective": "old"}, "an old door", "una puerta vieja"),
        ("shoe", {"determiner": lexicon.A, "plural": True}, "some shoes", "unos zapatos"),
        ("water", {"determiner": lexicon.THE, "adjective": "cold"},
         "the cold water", "el agua fría"),
        ("water", {"determiner": lexicon.THIS}, "this water", "esta agua"),
        ("woman", {"determiner": lexicon.THIS, "plural": True, "adjective": "young"},
         "these young women", "estas mujeres jóvenes"),
        ("sister", {"determiner": lexicon.OUR}, "our sister", "nuestra hermana"),
        ("son", {"determiner": lexicon.HER, "plural": True}, "her sons", "sus hijos"),
        ("house", {"number": 21}, "twenty-one houses", "veintiuna casas"),
        ("bus", {"number": 31, "adjective": "blue"}, "thirty-one blue buses",
         "treinta y un autobuses azules"),
        ("chair", {"determiner": lexicon.HOW_MANY, "plural": True}, "how many chairs",
         "cuántas sillas"),
    ],
)  # fmt: skip
def test_noun_phrase(noun, options, en, es):
    if "adjective" in options:
        options = {**options, "adjective": ADJECTIVES[options["adjective"]]}
    phrase = grammar.noun_phrase(noun=NOUNS[noun], **options)
    assert (phrase.en, phrase.es, phrase.lemma) == (en, es, noun)


def test_clitics():
    pronouns = (*lexicon.OBJECT_PRONOUNS, lexicon.THEY_F)
    assert [grammar.clitic(p) for p in pronouns] == ["me", "te", "lo", "la", "nos", "los", "las"]
    datives = [grammar.clitic(p, dative=True) for p in pronouns]
    assert datives == ["me", "te", "le", "le", "nos", "les", "les"]


def name(lemma):
    return grammar.noun_phrase(noun=NOUNS[lemma])


def the(lemma, **options):
    return grammar.noun_phrase(noun=NOUNS[lemma], determiner=lexicon.THE, **options)


def say(subject, verb, thing, tense, **slots):
    clause = grammar.describe_action(subject=subject, verb=VERBS[verb], thing=thing, tense=tense)
    return clause.plus(T=Words("yesterday", "ayer"), **slots)


def state(subject, copula, en, es, tense="present"):
    return grammar.describe_state(
        subject=subject, copula=copula, quality=Words(en, es), lemma=en, tense=tense
    )


ME, YOU, SHE, WE, THEY = map(
    grammar.pronoun_phrase, (lexicon.ME, lexicon.YOU, lexicon.SHE, lexicon.WE, lexicon.THEY)
)
YOU_ALL, HIM = grammar.pronoun_phrase(lexicon.YOU_ALL), grammar.pronoun_phrase(lexicon.HE)
APPLES = grammar.noun_phrase(noun=NOUNS["apple"], determiner=lexicon.A, plural=True)
MY_KEY = grammar.noun_phrase(noun=NOUNS["key"], determiner=lexicon.MY)
HOW_MANY_EGGS = grammar.noun_phrase(noun=NOUNS["egg"], determiner=lexicon.HOW_MANY, plural=True)


@pytest.mark.parametrize(
    ("template", "clause", "source", "target"),
    [
        # Spanish drops the subject pronoun if the ending of the verb determines it.
        ("{S} {V} {O} {T}.", say(ME, "lose", MY_KEY, "past"),
         "I lost my key yesterday.", "Perdí mi llave ayer."),
        ("{S} {V} {O} {T}.", say(SHE, "buy", APPLES, "past"),
         "She bought some apples yesterday.", "Ella compró unas manzanas ayer."),
        # Personal "a", and its contraction with "el"; "de" and "el".
        ("{S} {V} {O} {T}.", say(name("Ana"), "see", the("doctor"), "past"),
         "Ana saw the doctor yesterday.", "Ana vio al médico ayer."),
        ("{S} {V} {O} {T}.", say(WE, "return", the("market"), "past"),
         "We returned from the market yesterday.", "Volvimos del mercado ayer."),
        ("{T}, {S} {V} {O}.", say(YOU_ALL, "look", the("key", plural=True), "past"),
         "Yesterday, you all looked for the keys.", "Ayer ustedes buscaron las llaves."),
        # Negation, questions.
        ("{S} {notV} {O} {T}.", say(THEY, "drive", the("truck"), "past"),
         "They didn't drive the truck yesterday.", "Ellos no condujeron el camión ayer."),
        ("{do} {S} {base} {O} {T}?", say(name("Ana"), "sleep", the("garden"), "past"),
         "Did Ana sleep in the garden yesterday?", "¿Durmió Ana en el jardín ayer?"),
        ("where {do} {S} {base} {O}?", say(YOU, "find", the("hat"), "past"),
         "Where did you find the hat?", "¿Dónde encontraste el sombrero?"),
        ("when {do} {S} {base} {O}?", say(THEY, "visit", the("museum"), "future"),
         "When will they visit the museum?", "¿Cuándo visitarán ellos el museo?"),
        ("why {dont} {S} {base} {O}?", say(the("man"), "read", the("poem"), "past"),
         "Why didn't the man read the poem?", "¿Por qué no leyó el hombre el poema?"),
        ("{S} {V} {O} {T}?", say(grammar.WHO, "cook", the("soup"), "past"),
         "Who cooked the soup yesterday?", "¿Quién cocinó la sopa ayer?"),
        ("{O} {do} {S} {base} {T}?", say(YOU_ALL, "eat", HOW_MANY_EGGS, "past"),
         "How many eggs did you all eat yesterday?", "¿Cuántos huevos comieron ustedes ayer?"),
        # Progressive, modal, frequency, imperative.
        ("{S} {doing} {O} now.", say(ME, "write", the("letter"), "past"),
         "I am writing the letter now.", "Estoy escribiendo la carta ahora."),
        ("{S} {modal} {base} {O}.",
         say(ME, "go", the("park"), "past", modal=Words("have to", "tengo que")),
         "I have to go to the park.", "Tengo que ir al parque."),
        ("{S} {often} {V} {O}.",
         say(SHE, "wash", the("window"), "present", often=Words("never", "nunca")),
         "She never washes the window.", "Ella nunca lava la ventana."),
        ("please {order} {O}.", say(YOU, "close", the("door"), "future"),
         "Please close the door.", "Cierra la puerta, por favor."),
        # Object pronouns precede the verb, or follow the end of an infinitive.
        ("{S} {notV} {it} {T}.", say(SHE, "wait", HIM, "past"),
         "She didn't wait for him yesterday.", "Ella no lo esperó ayer."),
        ("{do} {S} {base} {it} {T}?", say(name("Ana"), "help", ME, "past"),
         "Did Ana help me yesterday?", "¿Me ayudó Ana ayer?"),
        ("{S} {modal} {base} {it}.",
         say(THEY, "call", SHE, "past", modal=Words("want to", "quieren")),
         "They want to call her.", "Ellos quieren llamarla."),
        ("{S} {V} {O} and {V2} {it2} {T}.",
         say(ME, "buy", the("water"), "past").then(say(ME, "drink", the("water"), "past")),
         "I bought the water and drank it yesterday.", "Compré el agua y la bebí ayer."),
        ("{S} {V} {O}, but {S2} {notV2} {it2}.",
         say(WE, "cook", the("egg", plural=True), "past").then(
             say(name("Hugo"), "eat", the("egg", plural=True), "past")),
         "We cooked the eggs, but Hugo didn't eat them.",
         "Cocinamos los huevos, pero Hugo no los comió."),
        # "Dar" names the receiver twice, and "gustar" exchanges subject and object.
        ("{S} {V} {O} to {whom} {T}.",
         say(ME, "give", the("book"), "past", whom=Words("the women", "las mujeres"),
             him=Words("them", "les")),
         "I gave the book to the women yesterday.", "Les di el libro a las mujeres ayer."),
        ("{S} {V} {him} {O} {T}.", say(name("Ana"), "send", APPLES, "past", him=Words("me", "me")),
         "Ana sent me some apples yesterday.", "Ana me envió unas manzanas ayer."),
        # "To be" is "ser", "estar" or "tener" (years, hunger), and "there is" is "haber".
        ("{S} {notbe} {Q}.", state(the("shoe", plural=True), lexicon.SER, "cheap", "baratos"),
         "The shoes aren't cheap.", "Los zapatos no son baratos."),
        ("{S} {be} {Q}.", state(WE, lexicon.ESTAR, "tired", "cansados", "past"),
         "We were tired.", "Estábamos cansados."),
        ("{S} {be} {Q}.", state(ME, lexicon.TENER, "thirty-one years old", "treinta y un años"),
         "I am thirty-one years old.", "Tengo treinta y un años."),
    ],
)  # fmt: skip
def test_sentence(template, clause, source, target):
    (spanish,) = {each.es for each in corpus.TEMPLATES if each.en == template} - {"{be} {Q}."}
    pair = corpus.Template(lambda draw: clause, template, spanish).fill(clause)
    assert (pair.source, pair.target) == (source, target)
    assert pair.triples == clause.triples


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("The teacher likes oranges.", "Al profesor le gustan las naranjas."),
        ("We don't like apples.", "No nos gustan las manzanas."),
        ("Does he like the books?", "¿A él le gustan los libros?"),
        ("Did the hardworking teacher like the oranges?",
         "¿Al profesor trabajador le gustaron las naranjas?"),
        ("I didn't like the green bus.", "No me gustó el autobús verde."),
        ("You all are younger than these women.", "Ustedes son más jóvenes que estas mujeres."),
        ("Was Clara as intelligent as her son?", "¿Era Clara tan inteligente como su hijo?"),
        ("The women who helped Maria were tired.",
         "Las mujeres que ayudaron a María estaban cansadas."),
        ("The apples that you all ate were delicious.",
         "Las manzanas que ustedes comieron estaban deliciosas."),
        ("There was a lamp in the museum.", "Había una lámpara en el museo."),
        ("Are there ten books in the library?", "¿Hay diez libros en la biblioteca?"),
        ("They sold thirty-one lamps last week.",
         "Ellos vendieron treinta y una lámparas la semana pasada."),
        ("Elena didn't wash this car because she was sick.",
         "Elena no lavó este coche porque estaba enferma."),
        ("Is Tomas in a hurry?", "¿Tiene prisa Tomás?"),
        ("Everyone knows that Maria opened her new door, but the actress didn't close it.",
         "Todos saben que María abrió su puerta nueva, pero la actriz no la cerró."),
    ],
)  # fmt: skip
def test_generated_sentence(source, target):
    """The training part contains this pair, whose sides a function for choices builds."""
    assert {pair.source: pair.target for pair in corpus.train_pairs()}[source] == target


if __name__ == "__main__":
    print(corpus_sha256())
