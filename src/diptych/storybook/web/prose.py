"""Filler sentences for pages, in five languages; none describes a picture."""

PROSE = {
    "en": (
        "We had planned this trip for months, and in the end everything turned out differently.",
        "The weather was better than the forecast had promised, so we stayed for another hour.",
        "My sister called in the evening and asked whether we would come for dinner on Sunday.",
        "It is hard to say how old the village is, because most of its records were lost in a fire.",
        "If you have any questions about what we write here, please leave us a few lines below.",
        "The first thing that you notice when you arrive is how quiet it is in the morning.",
        "Every year thousands of people come to see it, and hardly anyone stays overnight.",
        "I have been thinking about this for a long time and would like to share what I found.",
        "There was not much to do after lunch, and so the whole family went for a walk.",
        "Last week we finally had the time to sort through all that had been lying around.",
        "Nobody could have known that the small shop at the corner would close so soon.",
        "What follows is a short account of a day that none of us will forget.",
    ),
    "de": (
        "Wir hatten diese Reise seit Monaten geplant, und am Ende kam doch alles ganz anders.",
        "Das Wetter war besser, als die Vorhersage versprochen hatte, also blieben wir noch eine Stunde.",
        "Meine Schwester rief am Abend an und fragte, ob wir am Sonntag zum Essen kommen würden.",
        "Es ist schwer zu sagen, wie alt das Dorf ist, denn die meisten Akten verbrannten.",
        "Nach dem Mittagessen gab es nicht viel zu tun, und so ging die ganze Familie spazieren.",
        "Niemand konnte wissen, dass der kleine Laden an der Ecke so bald schließen würde.",
    ),
    "fr": (
        "Nous avions préparé ce voyage pendant des mois, et finalement tout s'est passé autrement.",
        "Le temps était meilleur que prévu, et nous sommes donc restés encore une heure de plus.",
        "Ma sœur a téléphoné le soir pour demander si nous viendrions dîner chez elle dimanche.",
        "Il est difficile de dire quel âge a le village, car la plupart des archives ont brûlé.",
        "Après le déjeuner il n'y avait plus grand-chose à faire, et toute la famille est sortie.",
        "Personne ne pouvait savoir que la petite boutique du coin fermerait aussi vite.",
    ),
    "es": (
        "Habíamos planeado este viaje durante meses, y al final todo salió de otra manera.",
        "El tiempo fue mejor de lo que habían anunciado, así que nos quedamos una hora más.",
        "Mi hermana llamó por la noche y preguntó si iríamos a cenar a su casa el domingo.",
        "Es difícil decir cuántos años tiene el pueblo, porque los archivos se quemaron.",
        "Después de comer no había mucho que hacer, y toda la familia salió a pasear.",
        "Nadie podía saber que la pequeña tienda de la esquina cerraría tan pronto.",
    ),
    "nl": (
        "We hadden deze reis al maanden gepland, en uiteindelijk liep alles toch anders.",
        "Het weer was beter dan de voorspelling had beloofd, dus bleven we nog een uurtje.",
        "Mijn zus belde 's avonds en vroeg of we zondag bij haar zouden komen eten.",
        "Het is moeilijk te zeggen hoe oud het dorp is, want de meeste stukken zijn verbrand.",
        "Na de lunch was er niet veel te doen, en dus ging het hele gezin wandelen.",
        "Niemand kon weten dat de kleine winkel op de hoek zo snel zou sluiten.",
    ),
}
TITLES = {
    "en": ("A day to remember", "Notes from the road", "What we did last summer", "Letters to a friend",
           "On the way home"),
    "de": ("Ein Tag zum Erinnern", "Notizen von unterwegs", "Was wir im Sommer taten"),
    "fr": ("Une journée inoubliable", "Notes de voyage", "Ce que nous avons fait cet été"),
    "es": ("Un día inolvidable", "Notas del camino", "Lo que hicimos este verano"),
    "nl": ("Een dag om te onthouden", "Aantekeningen van onderweg", "Wat we deze zomer deden"),
}  # fmt: skip
JUNK = ("image", "photo", "pic", "untitled", "img", "null", "picture 1", "---", "*** ### 00 11 22")
SPAM = (
    "Buy now!! Best price, free shipping on all orders today",
    "50% off everything in our shop, click here and order today",
    "FREE download!!! Subscribe to our newsletter for a discount coupon",
    "Limited offer: only $19.99, order now with free delivery",
)
COMMON = ("our summer collection of pictures from around the world", "a view of the place where we stayed all week")
