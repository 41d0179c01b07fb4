"""The commonest function words of languages that share their script with others.

They are words of grammar from the lists of stopwords-iso 0.7.1 (MIT licence), which brings those of
Snowball, Lucene and others together; with some of Estonian, Latvian, Lithuanian, Romanian,
Ukrainian and Urdu that these lists lack, or have without their diacritics. A word of several
languages is in the row of each.
"""

from __future__ import annotations

WORDS = {
    # Latin
    "en": "the of and to in is that it was for on are with as his they be at this from have "
          "not by but were we can which their you your there an would or if will a he she has "
          "had been who what its our my i me so do "
          "go am him her no just out up when more about",
    "de": "der die und das den von zu mit sich des auf für ist im dem nicht ein eine als auch "
          "es an werden aus er hat dass sie nach wird bei einer um am sind noch wie einem "
          "über einen zum war haben nur oder aber vor zur bis durch ich wir in so was "
          "du ihr mich dich mir dir habe wenn hast bin bist kann mein dein keine mehr "
          "schon hier da sehr",
    "fr": "le la les de des et est un une du en que qui dans il ce pas pour sur au par je "
          "avec se ne sont mais nous vous elle ou cette son sa ces aux leur être été ils plus "
          "on à y "
          "te tu mon ton ma si tout ai as moi toi bien fait",
    "es": "el la de que y en los se del las un por con una su para es al lo como más pero sus "
          "le ya este porque esta entre cuando muy sin sobre también me hasta hay donde no a "
          "o "
          "he has está eso te mi tu qué si todo estoy estás quiero",
    "it": "il di che la e è un una per non in del della i le con si da sono come dei gli al "
          "ma lo nel più anche alla nella questo ha ho delle a o "
          "ti mi mio tuo se ci chi cosa tutto",
    "pt": "o de a que e do da em um para é com não uma os no se na por mais as dos como mas "
          "foi ao ele das tem à seu sua ou ser quando muito há nos já está eu também pelo "
          "pela são "
          "te meu minha você isso tudo estou",
    "nl": "de het een van en in is dat op te zijn met voor niet aan er om ook als dan maar "
          "bij uit nog naar door over ze hij werd wordt hebben deze je ik "
          "u wie mijn jij me heb heeft wat geen",
    "sv": "och att det i en som är på av för med till den har de inte om ett men jag var sig "
          "så från vi kan när nu vid eller över skulle "
          "du mig dig min din här",
    "da": "og at det i en er som på af for med til den har de ikke om et men jeg var sig så "
          "fra vi kan når nu ved eller over skulle efter blev "
          "du mig dig min din her",
    "no": "og at det i en er som på av for med til den har de ikke om et men jeg var seg så "
          "fra vi kan når nå ved eller over skulle etter ble "
          "du meg deg min din her",
    "fi": "ja on ei se että en oli mutta hän ovat ole kun mitä olen tämä niin myös minä sen "
          "jos kuin olla nyt vain joka sitä",
    "et": "ja on ei see et oli aga ta kui mis seda oma või kes nii siis ning olen mida ma ole "
          "nagu välja",
    "lv": "un ir ar no par ka tas es kas to nav bet viņš lai tā vai kā ko pie bija arī šo uz "
          "ja",
    "lt": "ir į kad tai yra su iš ne buvo o aš kaip bet jis ar už nuo dėl tik jau labai",
    "pl": "i w z na się nie do to że jest o jak a ale po co za od czy tak był są przez go dla "
          "ma jego już tego może",
    "cs": "a se v na je že s z do o to i k jsem by ve pro jak si jako ale za co jsou po jeho "
          "tak byl od které",
    "sk": "a sa v na je že s z do o to i k som by vo pre ako si ale za čo sú po jeho tak bol "
          "od ktoré",
    "sl": "in je v se na da ki so z za pa s ne tudi bi po kot ali še od ni sem ko bil pri jih "
          "kaj",
    "hr": "i je u se na da su za s od a o kao što ne ili nije sam koji koje ali iz to biti",
    "ro": "și în de a la cu că nu este pe un o din se care mai pentru sunt fi era sau lui ce "
          "dar prin să",
    "hu": "a az és hogy nem is egy ez volt de meg csak azt ha van már mint még el ki vagy "
          "minden szerint",
    "tr": "ve bir bu da de için ile çok daha ne gibi olarak var o ama olan kadar sonra değil "
          "en ben",
    "id": "yang dan di ini itu dengan untuk tidak dari dalam akan pada adalah ke karena juga "
          "saya ada bisa boleh ialah",
    "vi": "và của là không được những các một cho người có trong với này đã khi",
    "ca": "el la de que i en els les un una per amb és no del al als dels però més són va com "
          "seva aquest també",
    # Cyrillic
    "ru": "и в не на что я с он как это по но они мы все так из его за от для был у же к бы "
          "было "
          "да вы ты меня тебя мне тебе если есть",
    "uk": "і в не на що я з як це та до але він за від для який або є про ти ви вони ми було "
          "його",
    "bg": "на и да се в за от не са е по си като ще с но към че той до или",
    # Arabic
    "ar": "في من على أن إلى هذا التي الذي كان عن لا ما مع",
    "fa": "و در به از که این را با است برای آن می",
    "ur": "کے میں کی ہے اور سے کا کو نے پر ہیں",
}  # fmt: skip
