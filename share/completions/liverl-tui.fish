function _liverl_tui_completion;
    set -l token (commandline -ct);
    # OPTION=VALUE: fish compares whole words.
    set -l before (string match -r -- '^--[^=]+=' $token);
    set -l response (env _LIVERL_TUI_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=$token liverl-tui);

    for completion in $response;
        set -l metadata (string split -m 1 "," $completion);

        if test $metadata[1] = "dir";
            for found in (__fish_complete_directories $metadata[2]); echo "$before$found"; end;
        else if test $metadata[1] = "file";
            for found in (__fish_complete_path $metadata[2]); echo "$before$found"; end;
        else if test $metadata[1] = "plain";
            echo "$before$metadata[2]";
        end;
    end;
end;

complete --no-files --command liverl-tui --arguments "(_liverl_tui_completion)";
