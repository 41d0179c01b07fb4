"""The words of the embedded corpus: nouns, verbs and adjectives in both languages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Person = Literal["1s", "2s", "3s", "1p", "3p"]
Gender = Literal["m", "f"]
Tense = Literal["present", "past", "future"]


@dataclass(frozen=True)
class Words:
    """The same words in both languages; empty if a language needs no words."""

    en: str = ""
    es: str = ""


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun or a name; its kind determines the verbs and adjectives that fit."""

    en: str
    es: str
    gender: Gender
    kind: str


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective, the kinds of nouns that it fits, and its Spanish copula ("to be")."""

    en: str
    es: str
    kinds: str
    copula: str


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb, its objects (kinds or nouns), and its irregular forms.

    Objects in `daily` suit a habit ("reads the newspaper"). Objects in `once` suit only a single
    event ("built a house"). Spanish forms are in the order of `PERSONS`.
    """

    en: str
    es: str
    daily: str = ""
    once: str = ""
    past_en: str = ""
    present: str = ""
    past: str = ""
    gerund: str = ""
    prepositions: Words = Words()


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun; `es` is empty if Spanish omits the subject."""

    en: str
    es: str
    object_en: str
    own: str
    person: Person
    gender: Gender = "m"


def gloss(table: str) -> tuple[Words, ...]:
    """Parse `english = spanish` entries, which are separated by semicolons."""
    return tuple(Words(*entry.strip().split(" = ")) for entry in table.split(";"))


PERSONS: tuple[Person, ...] = ("1s", "2s", "3s", "1p", "3p")  # no vosotros: "you all" is ustedes
# Determiners: English singular and plural; Spanish m. and f. singular, m. and f. plural.
THE = "the the el la los las"
A = "a some un una unos unas"
THIS = "this these este esta estos estas"
HOW_MANY = "- how_many - - cuántos cuántas"
MY = "my my mi mi mis mis"
YOUR = "your your tu tu tus tus"
OUR = "our our nuestro nuestra nuestros nuestras"
HIS, HER, THEIR, YOUR_ALL = (f"{en} {en} su su sus sus" for en in ("his", "her", "their", "your"))
ME = Pronoun("I", "", "me", MY, "1s")
YOU = Pronoun("you", "", "you", YOUR, "2s")
HE = Pronoun("he", "él", "him", HIS, "3s")
SHE = Pronoun("she", "ella", "her", HER, "3s", "f")
WE = Pronoun("we", "", "us", OUR, "1p")
YOU_ALL = Pronoun("you all", "ustedes", "you all", YOUR_ALL, "3p")
THEY = Pronoun("they", "ellos", "them", THEIR, "3p")
THEY_F = replace(THEY, gender="f")  # refers to nouns; as a subject, "they" is always "ellos"
IT = Pronoun("it", "", "it", THE, "3s")
IT_F = replace(IT, gender="f")
SUBJECT_PRONOUNS = (ME, YOU, HE, SHE, WE, YOU_ALL, THEY, ME, YOU, WE)  # rare verb forms twice
OBJECT_PRONOUNS = (ME, YOU, HE, SHE, WE, THEY)

NOUNS = {
    en: Noun(en, es, "f" if gender == "f" else "m", kind)
    for kind, table in {
        "food": "apple manzana f, orange naranja f, egg huevo m",
        "dish": "bread pan m, rice arroz m, soup sopa f, fish pescado m",
        "drink": "water agua f, milk leche f, coffee café m, tea té m",
        "text": "book libro m, letter carta f, newspaper periódico m, poem poema m",
        "vehicle": "car coche m, truck camión m, bus autobús m, bicycle bicicleta f",
        "opening": "door puerta f, window ventana f, box caja f",
        "clothes": "shirt camisa f, shoe zapato m, hat sombrero m",
        "furniture": "table mesa f, chair silla f, lamp lámpara f",
        "device": "clock reloj m, computer computadora f, phone teléfono m",
        "key": "key llave f",
        "building": "house casa f, school escuela f, hospital hospital m, museum museo m",
        "place": "kitchen cocina f, garden jardín m, park parque m, market mercado m,"
        " station estación f, office oficina f, library biblioteca f, city ciudad f",
        "person": "man hombre m, woman mujer f, doctor médico m, nurse enfermera f,"
        " teacher profesor m, actress actriz f",
        "kin": "brother hermano m, sister hermana f, son hijo m, daughter hija f,"
        " mother madre f, father padre m",
        "name": "Ana Ana f, Maria María f, Lucia Lucía f, Elena Elena f, Julia Julia f,"
        " Clara Clara f, Carlos Carlos m, Pablo Pablo m, Pedro Pedro m, Tomas Tomás m,"
        " Diego Diego m, Hugo Hugo m",
    }.items()
    for en, es, gender in (entry.split() for entry in table.split(","))
}

HUMAN = "person kin name"
MASS = "dish drink"
_GOODS = "clothes vehicle furniture device"
SINGULAR_ONLY = {"mother", "father"}
IRREGULAR_PLURALS = {"man": "men", "woman": "women", "joven": "jóvenes"}

ADJECTIVES = tuple(
    Adjective(entry.split()[0], entry.split()[1], kinds, copula)
    for table, kinds, copula in (
        ("red rojo, white blanco, black negro, green verde, blue azul", f"{_GOODS} opening", "ser"),
        ("new nuevo, old viejo", f"{_GOODS} opening text building place key", "ser"),
        ("big grande, small pequeño", "vehicle furniture opening building place", "ser"),
        ("expensive caro, cheap barato", f"{_GOODS} food {MASS}", "ser"),
        ("long largo, interesting interesante", "text", "ser"),
        ("beautiful hermoso", "clothes building place", "ser"),
        ("tall alto, young joven, strong fuerte, intelligent inteligente", HUMAN, "ser"),
        ("hardworking trabajador", HUMAN, "ser"),
        ("hot caliente, cold frío", MASS, "estar"),
        ("delicious delicioso", "food dish", "estar"),
        ("happy feliz, sad triste, tired cansado, sick enfermo, busy ocupado", HUMAN, "estar"),
    )
    for entry in table.split(",")
)

COLORS = {"red", "white", "black", "green", "blue"}
_TO, _FROM, _IN, _FOR = Words("to", "a"), Words("from", "de"), Words("in", "en"), Words("for")
_PUBLIC = "school hospital museum park market station office library city"
# fmt: off
VERBS = {verb.en: verb for verb in (
    Verb("read", "leer", "book newspaper poem", "letter", past_en="read",
         past="leí leíste leyó leímos leyeron", gerund="leyendo"),
    Verb("write", "escribir", "letter poem", "book", past_en="wrote"),
    Verb("eat", "comer", "food dish", past_en="ate"),
    Verb("drink", "beber", "drink", past_en="drank"),
    Verb("cook", "cocinar", "rice soup fish egg"),
    Verb("buy", "comprar", "food dish drink newspaper", f"{_GOODS} book house", past_en="bought"),
    Verb("sell", "vender", "food dish newspaper book", f"{_GOODS} house", past_en="sold"),
    Verb("wash", "lavar", "car shirt window", "vehicle clothes door table"),
    Verb("drive", "conducir", "car bus truck", past_en="drove",
         present="conduzco conduces conduce conducimos conducen",
         past="conduje condujiste condujo condujimos condujeron"),
    Verb("repair", "reparar", "car bicycle computer", "vehicle furniture device door window"),
    Verb("open", "abrir", "opening", "letter"),
    Verb("close", "cerrar", "opening", "book", present="cierro cierras cierra cerramos cierran"),
    Verb("paint", "pintar", "", "house kitchen door table chair bicycle box"),
    Verb("build", "construir", "", "house school hospital museum", past_en="built",
         present="construyo construyes construye construimos construyen", gerund="construyendo",
         past="construí construiste construyó construimos construyeron"),
    Verb("bring", "traer", "food dish drink newspaper", "chair book letter lamp box",
         past_en="brought", present="traigo traes trae traemos traen", gerund="trayendo",
         past="traje trajiste trajo trajimos trajeron"),
    Verb("look", "buscar", "", f"key hat phone book house box shoe {HUMAN}", prepositions=_FOR,
         past="busqué buscaste buscó buscamos buscaron"),
    Verb("wait", "esperar", f"bus {HUMAN}", prepositions=_FOR),
    Verb("visit", "visitar", f"museum hospital {HUMAN}", "school city"),
    Verb("help", "ayudar", HUMAN),
    Verb("call", "llamar", HUMAN),
    Verb("see", "ver", HUMAN, "vehicle museum house", past_en="saw",
         present="veo ves ve vemos ven", past="vi viste vio vimos vieron"),
    Verb("find", "encontrar", "", "key hat shoe book letter phone clock box", past_en="found"),
    Verb("lose", "perder", "", "key hat book phone letter shirt", past_en="lost"),
    Verb("work", "trabajar", f"garden {_PUBLIC}", prepositions=_IN),
    Verb("sleep", "dormir", "house garden office library", past_en="slept", prepositions=_IN,
         present="duermo duermes duerme dormimos duermen", gerund="durmiendo",
         past="dormí dormiste durmió dormimos durmieron"),
    Verb("run", "correr", "park garden city", past_en="ran", prepositions=_IN),
    Verb("sing", "cantar", "park garden kitchen school museum", past_en="sang", prepositions=_IN),
    Verb("go", "ir", _PUBLIC, past_en="went", prepositions=_TO,
         present="voy vas va vamos van", past="fui fuiste fue fuimos fueron"),
    Verb("return", "volver", _PUBLIC, prepositions=_FROM,
         present="vuelvo vuelves vuelve volvemos vuelven"),
    Verb("give", "dar", "food", "text clothes key phone clock lamp", past_en="gave",
         present="doy das da damos dan", past="di diste dio dimos dieron"),
    Verb("send", "enviar", "letter poem", "text clothes clock phone", past_en="sent",
         present="envío envías envía enviamos envían"),
    Verb("like", "gustar", "food dish drink text clothes vehicle"),
)}
# The past is the imperfect for these verbs, and the preterite for all others.
SER = Verb("be", "ser", present="soy eres es somos son", past="era eras era éramos eran")

ESTAR = Verb("be", "estar", present="estoy estás está estamos están",
             past="estaba estabas estaba estábamos estaban")

TENER = Verb("have", "tener", present="tengo tienes tiene tenemos tienen",
             past="tenía tenías tenía teníamos tenían", prepositions=Words("to", "que"))

HABER = Verb("be", "haber", present="hay " * 5, past="había " * 5)

MODALS = (TENER, Verb("can", "poder", present="puedo puedes puede podemos pueden"), Verb(
    "want", "querer", present="quiero quieres quiere queremos quieren", prepositions=Words("to")))

SEQUENCES = (  # a first action, a second action, and their objects
    ("buy", "eat", "food dish"), ("cook", "eat", "egg rice soup fish"), ("buy", "drink", "drink"),
    ("buy", "read", "book newspaper"), ("find", "read", "letter"), ("write", "send", "letter"),
    ("repair", "sell", "vehicle furniture device"), ("paint", "sell", "table chair bicycle house"),
    ("find", "sell", "hat phone clock"), ("wash", "paint", "door"), ("open", "close", "opening"),
)

WEEKDAYS = gloss("Monday = lunes; Tuesday = martes; Wednesday = miércoles; Thursday = jueves;"
                 " Friday = viernes; Saturday = sábado; Sunday = domingo")

TIMES = {
    "present": gloss("every day = todos los días; every morning = todas las mañanas") * 3
    + tuple(Words(f"on {day.en}s", f"los {day.es.removesuffix('s')}s") for day in WEEKDAYS),
    "past": gloss("yesterday = ayer; last night = anoche; last week = la semana pasada") * 3
    + tuple(Words(f"last {day.en}", f"el {day.es} pasado") for day in WEEKDAYS),
    "future": gloss("tomorrow = mañana; tonight = esta noche; next week = la próxima semana") * 3
    + tuple(Words(f"on {day.en}", f"el {day.es}") for day in WEEKDAYS),
}

OFTEN = gloss("always = siempre; never = nunca; often = a menudo; sometimes = a veces")
FRAMES = gloss("I think that = creo que; everyone knows that = todos saben que")
FEELINGS = gloss("hungry = hambre; thirsty = sed; afraid = miedo; in a hurry = prisa")
MONTHS = gloss("January = enero; February = febrero; March = marzo; April = abril; May = mayo;"
               " June = junio; July = julio; August = agosto; September = septiembre;"
               " October = octubre; November = noviembre; December = diciembre")

ONES = gloss(
    "zero = cero; one = uno; two = dos; three = tres; four = cuatro; five = cinco; six = seis;"
    " seven = siete; eight = ocho; nine = nueve; ten = diez; eleven = once; twelve = doce;"
    " thirteen = trece; fourteen = catorce; fifteen = quince; sixteen = dieciséis;"
    " seventeen = diecisiete; eighteen = dieciocho; nineteen = diecinueve")

TWENTIES = ("veinte", "veintiuno", "veintidós", "veintitrés", "veinticuatro", "veinticinco",
             "veintiséis", "veintisiete", "veintiocho", "veintinueve")

TENS = gloss("twenty = veinte; thirty = treinta; forty = cuarenta; fifty = cincuenta;"
             " sixty = sesenta; seventy = setenta; eighty = ochenta; ninety = noventa")
# fmt: on
