"""Signatures of pictures that cannot be read, and of chat templates that refuse what they get."""

from __future__ import annotations

from liverl.causes.signature import Signature

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="picture-unreadable",
        component="python",
        role="cause",
        pattern=r"UnidentifiedImageError: cannot identify image file (?P<file>[^\n]{1,200})",
        needle="cannot identify image file ",
        title="A picture cannot be read",
        cause=(
            "What should be a picture is none: {file} is empty, cut, an error page that was "
            "downloaded, or of a kind that Pillow does not know."
        ),
        fix="Find the row of the data, and replace or leave out that picture.",
        source="PIL/Image.py",
        fires=("PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f>"),
        spares="INFO image file identified",
    ),
    Signature(
        id="picture-cut",
        component="python",
        role="cause",
        pattern=(r"OSError: image file is truncated(?: \((?P<bytes>\d{1,12}) bytes not processed\))?"),
        needle="image file is truncated",
        title="A picture is cut off",
        cause="The file of a picture ends too early: a download or copy that was not finished.",
        fix="Replace that picture, or set ImageFile.LOAD_TRUNCATED_IMAGES of Pillow.",
        source="PIL/ImageFile.py",
        fires="OSError: image file is truncated (5 bytes not processed)",
        spares="INFO the image file is complete",
    ),
    Signature(
        id="picture-ratio",
        component="python",
        role="cause",
        pattern=(r"absolute aspect ratio must be smaller than (?P<most>\d{1,6}), got (?P<has>[\d.]{1,12})"),
        needle="absolute aspect ratio must be smaller than ",
        title="A picture is too narrow: its sides differ by {has}",
        cause="The model's processor takes pictures whose sides differ by less than {most}.",
        fix="Leave out or pad such pictures in the data.",
        source="transformers/models/qwen2_vl/image_processing_qwen2_vl.py",
        fires="ValueError: absolute aspect ratio must be smaller than 200, got 300.0",
        spares="INFO absolute aspect ratio 3",
    ),
    Signature(
        id="picture-token-count",
        component="python",
        role="cause",
        pattern=(r"Mismatch in `(?P<kind>image|video|audio)` token count between text and `input_ids`"),
        needle="` token count between text and `input_ids`",
        title="The text was cut in the middle of its {kind} tokens",
        cause=(
            "After the text was cut to the longest length, it no longer has as many {kind} tokens "
            "as the {kind}s need."
        ),
        fix=(
            "Raise training.max_prompt_length, leave out longer samples, or use smaller pictures "
            "(max_pixels)."
        ),
        source="transformers/processing_utils.py",
        fires=(
            "ValueError: Mismatch in `image` token count between text and `input_ids`. Got ids=[1] "
            "and text=[4]."
        ),
        spares="INFO the `image` token count",
    ),
    Signature(
        id="processor-failed",
        component="vllm",
        role="cause",
        pattern=r"Failed to apply (?P<processor>\w{1,80}) on data=",
        needle="Failed to apply ",
        title="{processor} cannot read a text with its pictures",
        cause=(
            "The engine hands text and pictures to {processor}, and that failed: the number of "
            "placeholders in the text differs from the number of pictures, a picture is broken or "
            "too small, or the text is already expanded."
        ),
        fix=(
            "Read the exception above it for the reason; send the prompt with one placeholder per "
            "picture, and the picture itself."
        ),
        effect=True,
        source="vllm/inputs/registry.py",
        fires=("RuntimeError: Failed to apply Qwen2_5_VLProcessor on data={'text': 'a'} with kwargs={}"),
        spares="INFO apply Qwen2_5_VLProcessor on data",
    ),
    Signature(
        id="template-refuses",
        component="python",
        role="general",
        pattern=(
            r"jinja2\.exceptions\.TemplateError: (?P<why>(?!.{0,80}onversation roles must "
            r"alternate)[^\n]{1,160})"
        ),
        needle="jinja2.exceptions.TemplateError: ",
        title="The model's chat template refuses the messages",
        cause="The template of the model says: {why}.",
        fix=(
            "Change the messages as it says (roles, tools, system message), or use another "
            "template (--chat-template, the tokenizer's chat_template)."
        ),
        effect=True,
        source="transformers/utils/chat_template_utils.py",
        fires="jinja2.exceptions.TemplateError: System role not supported",
        spares=("jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user"),
    ),
    Signature(
        id="template-undefined",
        component="python",
        role="general",
        pattern=r"jinja2\.exceptions\.UndefinedError: '(?P<name>\w{1,60})' is undefined",
        needle="jinja2.exceptions.UndefinedError: '",
        title="The chat template uses {name}, which it is not given",
        cause=(
            "The caller does not pass {name} to the template: an older version of transformers or "
            "vLLM, or a template that was written for another model."
        ),
        fix=(
            "Pass it (chat_template_kwargs), update transformers and the engine, or use the "
            "template of this checkpoint."
        ),
        effect=True,
        source="jinja2",
        fires="jinja2.exceptions.UndefinedError: 'tools' is undefined",
        spares="jinja2.exceptions.UndefinedError: 'str' object has no attribute 'x'",
    ),
    Signature(
        id="template-syntax",
        component="python",
        role="general",
        pattern=r"jinja2\.exceptions\.TemplateSyntaxError: (?P<why>[^\n]{1,160})",
        needle="jinja2.exceptions.TemplateSyntaxError: ",
        title="A chat template is not valid: {why}",
        cause=(
            "The template of the model, or the file given as one, is no valid Jinja template, or "
            "its quotes were eaten by a shell."
        ),
        fix="Correct the template; give it as a file, not as text on the command line.",
        effect=True,
        source="jinja2",
        fires="jinja2.exceptions.TemplateSyntaxError: unexpected 'end of template'",
        spares="INFO jinja2.exceptions.TemplateSyntaxError is handled",
    ),
    Signature(
        id="processor-unknown",
        component="python",
        role="cause",
        pattern=(
            r"Unrecognized (?P<what>processing class|image processor|feature extractor|video "
            r"processor) in (?P<path>[^\s]{1,300}?)\. "
        ),
        needle="Unrecognized ",
        title="There is no {what} for this model",
        cause=(
            "transformers finds none of the processor's files in {path}, or does not know the "
            "processor that they name."
        ),
        fix=(
            "Copy preprocessor_config.json (and the tokenizer's files) to the model's folder, or "
            "update transformers."
        ),
        command="ls {path}",
        source="transformers/models/auto",
        fires=(
            "ValueError: Unrecognized processing class in /models/VL. Can't instantiate a "
            "processor, a tokenizer, an image processor or a feature extractor for this model."
        ),
        spares="INFO Unrecognized keys in the image processor",
    ),
)
