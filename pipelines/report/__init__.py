"""Pages to look at: reports of folders, and attention.

page              HTML of parts that are escaped, and the page around them
charts            Matplotlib's figures as SVG in the colours of the page
attention_part    attention of a sentence, layer and head to be chosen
attention_request a sentence and a model to a picture or a page of attention
dataset_part      sections on a dataset folder
run_part          sections on a run folder
runs_part         several runs side by side
translated_part   sections on a translated folder
request           folders to a report
"""
