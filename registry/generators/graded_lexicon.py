"""A small English-German lexicon: what the sentences of `graded_pairs` can be about.

Every line is one concept: words on one line mean the same. A verb lists the kinds of thing it can be done to: nobody
eats a ladder.
"""

from __future__ import annotations

from dataclasses import dataclass

_PEOPLE = """
doctor, physician | der Arzt
nurse | die Krankenschwester
dentist | der Zahnarzt
teacher, instructor | der Lehrer
student, pupil | der Student, Studenten
professor, lecturer | der Professor
farmer | der Bauer, Bauern
shepherd | der Hirte, Hirten
hunter | der Jäger
policeman, police officer | der Polizist, Polizisten
lawyer, attorney | der Anwalt
judge | der Richter
singer, vocalist | der Sänger
actor, performer | der Schauspieler
writer, author | der Schriftsteller
cook, chef | der Koch
baker | der Bäcker
waiter | der Kellner
sailor, seaman | der Matrose, Matrosen
pilot, aviator | der Pilot, Piloten
tourist, traveler | der Tourist, Touristen
king, monarch | der König
queen | die Königin
prince | der Prinz, Prinzen
boy, lad | der Junge, Jungen
girl | das Mädchen
child, kid | das Kind
"""

_THINGS = """
car, automobile | das Auto | vehicle
bicycle, bike | das Fahrrad | vehicle
truck, lorry | der Lastwagen | vehicle
boat | das Boot | vehicle
motorcycle, motorbike | das Motorrad | vehicle
apple | der Apfel | food
soup | die Suppe | food
cake | der Kuchen | food
bread, loaf | das Brot | food
sausage | die Wurst | food
book | das Buch | text
letter | der Brief | text
newspaper, paper | die Zeitung | text
poem, verse | das Gedicht | text
diary, journal | das Tagebuch | text
table | der Tisch | furniture
sofa, couch | das Sofa | furniture
lamp, light | die Lampe | furniture
carpet, rug | der Teppich | furniture
mirror | der Spiegel | furniture
dog, hound | der Hund | animal
cat | die Katze | animal
horse | das Pferd | animal
sheep | das Schaf | animal
donkey | der Esel | animal
"""

_VERBS = """
help helped helped, assist assisted assisted | unterstützt | person
rescue rescued rescued, save saved saved | gerettet | person animal
protect protected protected, guard guarded guarded | beschützt | person animal
greet greeted greeted, welcome welcomed welcomed | begrüßt | person
praise praised praised, commend commended commended | gelobt | person animal
warn warned warned, alert alerted alerted | gewarnt | person
watch watched watched, observe observed observed | beobachtet | person animal vehicle
find found found, discover discovered discovered | gefunden | person animal vehicle food text furniture
photograph photographed photographed | fotografiert | person animal vehicle food furniture
push pushed pushed, shove shoved shoved | gestoßen | person animal vehicle furniture
pull pulled pulled, drag dragged dragged | gezogen | person animal vehicle furniture
lift lifted lifted, raise raised raised | hochgehoben | person animal furniture
hit hit hit, strike struck struck | geschlagen | person animal
attack attacked attacked, assault assaulted assaulted | angegriffen | person animal
destroy destroyed destroyed, wreck wrecked wrecked | zerstört | vehicle text furniture
buy bought bought, purchase purchased purchased | gekauft | animal vehicle food text furniture
sell sold sold | verkauft | animal vehicle food text furniture
steal stole stolen | gestohlen | animal vehicle food text furniture
repair repaired repaired, fix fixed fixed | repariert | vehicle furniture
paint painted painted | gemalt | person animal vehicle furniture
design designed designed | entworfen | vehicle furniture
eat ate eaten, consume consumed consumed | gegessen | food
prepare prepared prepared, make made made | zubereitet | food
taste tasted tasted, sample sampled sampled | gekostet | food
read read read | gelesen | text
write wrote written, compose composed composed | geschrieben | text
translate translated translated | übersetzt | text
"""

_QUALITIES = """
happy, cheerful | glücklich
angry, furious | wütend
clever, smart | klug
brave, courageous | mutig
rich, wealthy | reich
famous, well-known | berühmt
sick, ill | krank
polite, courteous | höflich
lonely | einsam
"""

_PLACES = """
in the kitchen | in der Küche
in the cellar, in the basement | im Keller
in the bedroom | im Schlafzimmer
in the park | im Park
in the garden, in the yard | im Garten
in the forest, in the woods | im Wald
at the station | am Bahnhof
at the airport | am Flughafen
in the harbor, in the port | im Hafen
in the street, on the road | auf der Straße
at the market, at the marketplace | auf dem Markt
in front of the church | vor der Kirche
on the beach, on the shore | am Strand
by the river | am Fluss
near the lake | am See
"""


@dataclass(frozen=True)
class Concept:
    """A meaning with its German word: a verb's participle, an adjective's stem."""

    german: str


@dataclass(frozen=True)
class Word(Concept):
    """An adjective or place: English phrases that mean the same."""

    english: tuple[str, ...]


@dataclass(frozen=True)
class Noun(Word):
    """A noun: German article and oblique form, and the kind of thing it names."""

    article: str
    oblique: str
    kind: str


@dataclass(frozen=True)
class Verb(Concept):
    """A verb: English synonyms as (base, past, participle), and the kinds of thing it can be done to."""

    english: tuple[tuple[str, str, str], ...]
    objects: frozenset[str]


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _split(cell: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in cell.split(","))


def _noun(english: str, german: str, kind: str) -> Noun:
    article, word = german.split(" ", 1)
    forms = _split(word)
    return Noun(forms[0], _split(english), article, forms[-1], kind)


def _verb(english: str, german: str, objects: str) -> Verb:
    forms = [part.split() for part in _split(english)]
    return Verb(german, tuple((base, past, done) for base, past, done in forms), frozenset(objects.split()))


PEOPLE = tuple(_noun(english, german, "person") for english, german in _cells(_PEOPLE))
THINGS = tuple(_noun(*cells) for cells in _cells(_THINGS))
VERBS = tuple(_verb(*cells) for cells in _cells(_VERBS))
QUALITIES = tuple(Word(german, _split(english)) for english, german in _cells(_QUALITIES))
PLACES = tuple(Word(german, _split(english)) for english, german in _cells(_PLACES))
