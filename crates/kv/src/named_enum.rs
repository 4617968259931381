//! Enums whose variants have names.

/// An enum with variants as `Get = "get"`: `ALL` lists them, and `name` gives the text.
#[macro_export]
macro_rules! named_enum {
    ($(#[$of_enum:meta])* pub enum $enum:ident { $($(#[$of_variant:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$of_enum])*
        pub enum $enum {
            $($(#[$of_variant])* $variant,)*
        }

        impl $enum {
            /// All of them, in their order; the place of one is `one as usize`.
            pub const ALL: [$enum; [$($name),*].len()] = [$($enum::$variant),*];

            /// Its name, as people read it.
            pub fn name(self) -> &'static str {
                [$($name),*][self as usize]
            }
        }
    };
}
