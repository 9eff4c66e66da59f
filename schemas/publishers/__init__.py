"""What a publisher in any language must do, as tables, as a page and as vectors that its code can check."""
