"""Words about icons: the sets, what names say of style, what means one thing, what means several."""

from __future__ import annotations

# One set a family of drawings: no feather beside lucide, no material-symbols beside mdi.
_SETS = """
akar-icons ant-design basil bi boxicons carbon charm ci cil clarity codicon entypo eva f7 fa6-solid
flowbite fontisto gg gravity-ui grommet-icons heroicons hugeicons humbleicons icon-park-outline iconoir
ion ix jam la lets-icons lucide mage majesticons mdi mingcute mynaui octicon pepicons-pop ph prime
proicons radix-icons ri solar streamline system-uicons tabler tdesign teenyicons typcn uil vaadin whh
zondicons
"""
SETS = _SETS.split()

_STYLES = """
outline outlined line linear fill filled solid bold light thin duotone twotone regular rounded round
sharp stroke o f glyph broken remix negative alt 1 2 3 11 12 15 16 20 24 28 32 48
"""
STYLES = set(_STYLES.split())

_SAME = """
home house / settings cog gear / mail envelope email / trash bin trashcan garbage
user person account profile / search magnifying-glass / airplane plane aeroplane / fire flame
lightning bolt flash thunder thunderbolt / pin map-pin location map-marker marker / cart shopping-cart
monitor desktop display screen computer / tv television / image picture photo images
pie-chart chart-pie / bar-chart chart-bar / mobile smartphone cellphone device-mobile / printer print
thumbs-up thumb-up like / package parcel / thumbs-down thumb-down dislike / microphone mic
globe world earth / users people user-group group / plus add / close x times cancel / hash hashtag
unlock lock-open / save floppy floppy-disk diskette / scissors cut / flask beaker / briefcase suitcase
paperclip attachment attach / paper-plane send / filter funnel / pencil edit pen / bell notification
timer stopwatch / store shop / lightbulb bulb light-bulb / eye-off eye-closed eye-slash
message chat comment comments / envelope-open mail-open / question help question-circle help-circle
at at-sign / check tick / truck lorry / close-circle x-circle circle-x / check-circle circle-check
plus-circle circle-plus add-circle / minus-circle circle-minus / info-circle circle-info
cup mug coffee tea hot-drink / wine wine-glass / arrow-left-circle arrow-circle-left circle-arrow-left
arrow-right-circle arrow-circle-right circle-arrow-right
arrow-up-circle arrow-circle-up circle-arrow-up / arrow-down-circle arrow-circle-down circle-arrow-down
volume-mute volume-off volume-x mute / first-aid first-aid-kit / film movie / hard-drive harddrive
folder-plus folder-add / file-plus file-add / user-plus user-add / user-minus user-remove
logout log-out sign-out / login log-in sign-in / external-link link-external / refresh reload sync
rss feed / shield-check shield-tick / puzzle puzzle-piece / graduation-cap school-cap mortarboard
megaphone bullhorn / gamepad game-controller / cloud-upload upload-cloud / cloud-download download-cloud
bicycle bike / battery-charging battery-charge / fork-knife utensils restaurant cutlery
phone telephone call / tag label / trending-up trend-up / trending-down trend-down / calendar date
clock time / ban block prohibited forbidden / power power-off shutdown
dots-horizontal more-horizontal ellipsis / expand fullscreen maximize / snowflake snow
minimize collapse / alarm alarm-clock / qr-code qrcode / video video-camera / money cash banknote
cloud-rain rain / rewind backward / percent percentage / copy duplicate / bell-off bell-slash
play triangle-right / align-center text-align-center / volume volume-up volume-down volume-low
eyedropper color-picker / music music-note / wheelchair accessibility / train subway / cloud cloudy
database cylinder / sun brightness / clipboard paste / diamond gem / brush paintbrush / door door-open
align-left text-align-left / align-right text-align-right / bag shopping-bag / award badge
fast-forward skip-forward step-forward
"""
SAME = {
    word: group.split()[0]
    for line in _SAME.splitlines()
    for group in line.split("/")
    for word in group.split()
}

_MANY_THINGS = """
apple cross target text table line frame scale record note stop mouse window move sort cast language
translate dashboard chart shapes network export import layout scan navigation medium tools signal radio
speaker library watch card box disc bank hand border glass date water pulse album help delete warning
directions stack activity share history component block number select view view-list list-view design
space air app apps crane bat bar press fan forward message-alt percentage-alt document file list grid
columns menu-alt brand vector page section store-alt input command code-block content play-list cell
focus status draw model data form action control transfer track power-alt pattern plan chip drop return
enter up down left right next previous back fork male female timeline checkbox caret-left caret-right
caret-up caret-down border-left border-right border-top border-bottom graph switch mask mirror container
slash angle notes school
"""
_BRANDS = """
twitter facebook youtube github google instagram linkedin dribbble slack whatsapp telegram spotify reddit
behance pinterest paypal android figma dropbox discord snapchat windows twitch gitlab tiktok codepen
messenger skype vk stripe amazon chrome safari opera trello vimeo codesandbox npm docker python java
javascript php html5 css3 react angular bitbucket soundcloud tumblr wechat qq weibo alipay foursquare
flickr lastfm stackoverflow visa mastercard bootstrap wordpress firefox edge notion zoom gitter deezer
google-play linux google-drive digg evernote yahoo xing yelp ubuntu tencent taobao
"""
LEFT_OUT = set(_MANY_THINGS.split()) | set(_BRANDS.split())
